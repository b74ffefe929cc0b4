"""TensorFlow's operations of tutti: TensorFlow loads their library, and the library learns the job's process sets."""

import ctypes
import os

import tensorflow as tf
from tensorflow.python.framework import auto_control_deps

import tutti

from .. import _job

_PATH = os.path.join(os.path.dirname(os.path.abspath(tutti.__file__)), "libtutti_tensorflow.so")


# tf.function runs stateful operations one after the other, in the order of the program. These have no order: one that waits for other
# ranks must not hold up the next.
_UNORDERED = {"TuttiAllreduce", "TuttiAllgather", "TuttiBroadcast", "TuttiReducescatter", "TuttiAlltoall"}


def _load():
    try:
        auto_control_deps.MUST_RUN_ORDER_INSENSITIVE_STATEFUL_OPS |= _UNORDERED
        return tf.load_op_library(_PATH)
    except (tf.errors.OpError, OSError, AttributeError) as error:
        raise ImportError(
            f"tutti.horovod.tensorflow: TensorFlow {tf.__version__} cannot load {_PATH}: {error}; versions 2.15 to 2.21 are known to"
        ) from error


class _Follower:
    """Keeps the library's table of process sets equal to the job's."""

    def __init__(self):
        self._library = ctypes.CDLL(_PATH)
        self._library.tutti_tensorflow_add_process_set.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_void_p]
        self._known = set()
        # A thread of TensorFlow may submit while the job ends; a queue that is closed refuses it.
        self._queues = []

    def __call__(self, job):
        if job is None:
            self._library.tutti_tensorflow_end_job()
            self._known = set()
            return
        if not self._known:
            self._library.tutti_tensorflow_begin_job(job.place.local_rank, job.place.local_size)
        for number in self._known - job.sets.keys():
            self._library.tutti_tensorflow_remove_process_set(number)
        for number in job.sets.keys() - self._known:
            ranks = job.sets[number].ranks
            is_member = job.rank in ranks
            queue = job.memberships[number].queue if is_member else None
            self.add(number, ranks.index(job.rank) if is_member else -1, len(ranks), queue)
        self._known = set(job.sets)

    def add(self, number, rank, size, queue):
        """Makes a set known until the job ends. rank: -1 where this process is no member, which has no queue."""
        if queue is not None:
            self._queues.append(queue)
        self._library.tutti_tensorflow_add_process_set(number, rank, size, None if queue is None else queue.c_handle)


operations = _load()
follower = _Follower()
_job.watch(follower)
