"""Adasum: adds gradients as far as they are orthogonal, and averages them as far as they are parallel.

Two vectors become a * (1 - a.b / 2 a.a) + b * (1 - a.b / 2 b.b). Ranks combine in pairs of growing distance, each rank the whole vector:
log2(ranks) exchanges. Both ranks of a pair compute from equal bytes in equal order, so that all ranks end with equal bits.
Source: Maleki et al., "Scaling Distributed Training with Adaptive Summation", MLSys 2021.
"""

import queue
import threading

import numpy

from . import _job
from .exceptions import HorovodInternalError
from .process_sets import global_process_set


def check(process_set):
    """Errors: NotImplementedError, as Horovod has it."""
    if process_set is not global_process_set and process_set.process_set_id != 0:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    size = _job.current().size
    if size & (size - 1):
        raise NotImplementedError("Running Adasum with non-power of 2 ranks is not supported yet.")


def combine(a, b):
    """The Adasum of two flat arrays, in their dtype. Products are summed in double precision."""
    wide_a, wide_b = a.astype(numpy.float64), b.astype(numpy.float64)
    dot, a_square, b_square = wide_a @ wide_b, wide_a @ wide_a, wide_b @ wide_b
    a_factor = 1 - dot / (2 * a_square) if a_square > 0 else 1.0
    b_factor = 1 - dot / (2 * b_square) if b_square > 0 else 1.0
    return (a_factor * wide_a + b_factor * wide_b).astype(a.dtype)


class _Part:
    """One tensor's Adasum: complete once the last pair has combined."""

    def __init__(self):
        self._is_complete = threading.Event()
        self._error = None

    def complete(self, error=None):
        self._error = error
        self._is_complete.set()

    def test(self):
        return self._is_complete.is_set()

    def wait(self):
        self._is_complete.wait()
        if self._error is not None:
            raise self._error


class Pairs:
    """The groups of two of one job: levels[i] is this rank's membership at distance 2**i."""

    def __init__(self, job):
        self.levels = []
        distance = 1
        while distance < job.size:
            low = job.rank & ~distance
            group = job.world.create([low, low | distance], tag=f"horovod adasum {distance}")
            self.levels.append(_job.Membership(group))
            distance *= 2

    def close(self):
        for level in reversed(self.levels):
            level.close()
            level.group.close()


def pairs_of(job):
    """Made at the first call, which all ranks make."""
    return job.resource("adasum pairs", Pairs)


class _Combiner:
    """The thread that combines. It never waits, so tensors may come in any order."""

    def __init__(self, _job_here):
        self.steps = queue.SimpleQueue()
        threading.Thread(target=self._run, name="tutti-adasum", daemon=True).start()

    def _run(self):
        while True:
            step = self.steps.get()
            if step is None:
                return
            step()

    def close(self):
        self.steps.put(None)


def start(arrays, name, tensor, output, prescale, postscale):
    """Starts the Adasum of one tensor into output. Returns what Operation takes as a part."""
    job = _job.current()
    pairs = pairs_of(job)
    combiner = job.resource("adasum combiner", _Combiner)
    part = _Part()
    own = arrays.flat(tensor) * prescale

    def exchange(level, vector):
        if level == len(pairs.levels):
            arrays.assign_flat(output, vector * postscale)
            part.complete()
            return
        both = numpy.empty(2 * vector.size, vector.dtype)
        work = pairs.levels[level].queue.submit(name, vector, both, collective="allgather", shape=[vector.size])

        def combine_pair():
            try:
                exchange(level + 1, combine(both[: vector.size], both[vector.size :]))
            except Exception as error:  # pylint: disable=broad-except  # the waiting thread raises it
                part.complete(error)

        def on_complete(error):
            if error is None:
                combiner.steps.put(combine_pair)
            else:
                part.complete(HorovodInternalError(str(error)))

        work.on_complete(on_complete)

    exchange(0, own)
    return part
