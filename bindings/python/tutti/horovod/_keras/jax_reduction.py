"""How gradients are reduced on Keras's backend jax."""

import functools

import numpy

import tutti.horovod as hvd

from .. import _job
from .._operations import OP_NAMES
from ..compression import compressed
from .reductions import CompressedReduction


class _JobQueues:
    """The queues of the job's process sets for compiled steps, which go on with those of a later job."""

    def __init__(self):
        self._queues = {}  # by the number of the set
        _job.watch(self)

    def __call__(self, job):
        for number, queue in self._queues.items():
            membership = None if job is None else job.memberships.get(number)
            if membership is not None:
                queue.replace(membership.group, membership.queue)

    def of(self, process_set):
        import tutti.jax  # pylint: disable=import-outside-toplevel  # needs JAX

        number, membership = process_set.process_set_id, _job.current().membership(process_set)
        if number not in self._queues:
            self._queues[number] = tutti.jax.Queue(membership.group, membership.queue)
        return self._queues[number]


@functools.cache
def _job_queues():
    return _JobQueues()


class JaxReduction(CompressedReduction):
    """On CPUs one operation of XLA for each group. Elsewhere a callback of the host, in the order of the program."""

    def _reduce(self, gradients, numbers, groups):
        import jax  # pylint: disable=import-outside-toplevel  # other backends lack it
        from jax.experimental import io_callback  # pylint: disable=import-outside-toplevel

        if jax.default_backend() == "cpu":
            # All of them are there: they share the negotiation.
            groups = [list(range(len(gradients)))] if groups is None else groups
            return compressed(lambda narrow: self._reduce_compiled(narrow, numbers, groups), gradients, self._compression)

        def on_host(arrays):
            return self._reduce_by(hvd, [numpy.asarray(array) for array in arrays], numbers, groups)

        shapes = [jax.ShapeDtypeStruct(gradient.shape, gradient.dtype) for gradient in gradients]
        return io_callback(on_host, shapes, gradients, ordered=True)

    def _reduce_compiled(self, gradients, numbers, groups):
        import tutti.jax  # pylint: disable=import-outside-toplevel  # needs JAX

        queue, op = _job_queues().of(self.process_set), OP_NAMES[self.options["op"]]
        before, after = self.options["prescale_factor"], self.options["postscale_factor"]
        results = [None] * len(gradients)
        for group in groups:
            name = f"{self.name}.gradient.{numbers[group[0]]}"
            given = [gradients[place] if before == 1.0 else gradients[place] * before for place in group]
            for place, reduced in zip(group, tutti.jax.grouped_allreduce(given, op, group=queue, name=name)):
                results[place] = reduced if after == 1.0 else reduced * after
        return results
