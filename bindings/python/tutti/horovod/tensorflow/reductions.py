"""Reductions with compression, also of gradients of embeddings, which are tf.IndexedSlices."""

import tensorflow as tf

from .._basics import Adasum, Average, Sum
from ..compression import compressed
from ..process_sets import global_process_set
from .compression import Compression
from .mpi_ops import (
    _allreduce,
    _grouped_allreduce,
    _grouped_reducescatter,
    _reducescatter,
    grouped_allgather,
    handle_average_backwards_compatibility,
)


def _compressed(reduce, tensors, compression):
    # Variables stay ones: operations get their names.
    return compressed(reduce, [tensor if tf.is_tensor(tensor) else tf.convert_to_tensor(tensor) for tensor in tensors], compression)


def _reduce_slices(slices, op, prescale_factor, postscale_factor, ignore_name_scope, process_set):
    """Sums slices by gathering those of all members."""
    if op == Adasum:
        raise NotImplementedError(
            "The Adasum reduction does not currently support sparse tensors. As a workaround please pass sparse_as_dense=True to "
            "DistributedOptimizer"
        )
    if op not in (Sum, Average):
        raise NotImplementedError("Only Sum and Average ops are supported with tf.IndexedSlices")
    if prescale_factor != 1.0 or postscale_factor != 1.0:
        raise NotImplementedError("Pre/postscale_factor are not supported with tf.IndexedSlices")
    parts = [part for entry in slices for part in (entry.values, entry.indices)]
    gathered = grouped_allgather(parts, ignore_name_scope=ignore_name_scope, process_set=process_set)
    reduced = []
    for entry, values, indices in zip(slices, gathered[::2], gathered[1::2]):
        if op == Average:
            values = values / tf.cast(process_set.size(), values.dtype)
        reduced.append(tf.IndexedSlices(values, indices, dense_shape=entry.dense_shape))
    return reduced


def allreduce(
    tensor,
    average=None,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    name=None,
    process_set=global_process_set,
    ignore_name_scope=False,
):
    """The reduction of a tensor, a variable or tf.IndexedSlices over all members of the process set: a new tensor.

    op: Average (default), Sum, Min, Max or Product; of slices Average or Sum. prescale_factor: of each input; postscale_factor: of the
    result. device_dense, device_sparse: where TensorFlow places what surrounds the operation; tutti's own run on the CPU.
    """
    op = handle_average_backwards_compatibility(op, average)
    if isinstance(tensor, tf.IndexedSlices):
        with tf.device(device_sparse):
            return _reduce_slices([tensor], op, prescale_factor, postscale_factor, ignore_name_scope, process_set)[0]

    def reduce(tensors):
        return [_allreduce(tensors[0], name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set)]

    with tf.device(device_dense):
        return _compressed(reduce, [tensor], compression)[0]


def grouped_allreduce(
    tensors,
    average=None,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    op=None,
    prescale_factor=1.0,
    postscale_factor=1.0,
    process_set=global_process_set,
    ignore_name_scope=False,
    name=None,
):
    """As allreduce() of each tensor, communicated together or not at all. Returns a list."""
    tensors = list(tensors)
    op = handle_average_backwards_compatibility(op, average)
    slices = [i for i, tensor in enumerate(tensors) if isinstance(tensor, tf.IndexedSlices)]
    dense = [i for i in range(len(tensors)) if i not in slices]

    def reduce(compressed):
        return _grouped_allreduce(compressed, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set)

    results = list(tensors)
    if slices:
        with tf.device(device_sparse):
            reduced = _reduce_slices([tensors[i] for i in slices], op, prescale_factor, postscale_factor, ignore_name_scope, process_set)
        for i, result in zip(slices, reduced):
            results[i] = result
    if dense:
        with tf.device(device_dense):
            reduced = _compressed(reduce, [tensors[i] for i in dense], compression)
        for i, result in zip(dense, reduced):
            results[i] = result
    return results


def reducescatter(
    tensor,
    device_dense="",
    compression=Compression.none,
    op=Average,
    name=None,
    process_set=global_process_set,
    ignore_name_scope=False,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """This member's rows of the reduction; the first members get one row more where the rows do not divide. op: Average or Sum."""

    def reduce(tensors):
        return [_reducescatter(tensors[0], name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor)]

    with tf.device(device_dense):
        return _compressed(reduce, [tensor], compression)[0]


def grouped_reducescatter(
    tensors,
    device_dense="",
    compression=Compression.none,
    op=Average,
    process_set=global_process_set,
    prescale_factor=1.0,
    postscale_factor=1.0,
):
    """As reducescatter() of each tensor, communicated together or not at all. Returns a list."""

    def reduce(compressed):
        return _grouped_reducescatter(compressed, None, op, False, process_set, prescale_factor, postscale_factor)

    if not tensors:
        return tensors
    with tf.device(device_dense):
        return _compressed(reduce, tensors, compression)
