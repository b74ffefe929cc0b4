"""Python objects between ranks, pickled: with cloudpickle where it is installed, which takes functions as well."""

import numpy

try:
    import cloudpickle as pickle
except ImportError:
    import pickle

from . import _job, _operations
from ._numpy import arrays
from .process_sets import global_process_set


def _to_bytes(obj):
    return numpy.frombuffer(bytearray(pickle.dumps(obj)), numpy.uint8)


def broadcast_object(obj, root_rank=0, name=None, process_set=global_process_set):
    """The object of root_rank, a rank of the job, on all members. It is pickled: give none that ranks do not trust."""
    name = name or type(obj).__name__
    is_root = _job.current().rank == root_rank
    content = _to_bytes(obj) if is_root else None
    length = numpy.array([content.size if is_root else 0], numpy.int64)
    _operations.synchronize(_operations.broadcast(arrays, length, length, root_rank, name + ".sz", process_set))
    if not is_root:
        content = numpy.empty(int(length[0]), numpy.uint8)
    _operations.synchronize(_operations.broadcast(arrays, content, content, root_rank, name + ".t", process_set))
    return obj if is_root else pickle.loads(content.tobytes())


def allgather_object(obj, name=None, process_set=global_process_set):
    """The objects of all members, as a list in rank order."""
    name = name or type(obj).__name__
    content = _to_bytes(obj)
    length = numpy.array([content.size], numpy.int64)
    [lengths] = _operations.synchronize(_operations.allgather(arrays, [length], name + ".sz", process_set, False))
    [everybody] = _operations.synchronize(_operations.allgather(arrays, [content], name + ".t", process_set, False))
    ends = numpy.cumsum(lengths)
    return [pickle.loads(everybody[end - length : end].tobytes()) for end, length in zip(ends, lengths)]
