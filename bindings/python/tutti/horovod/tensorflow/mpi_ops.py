"""Collectives of TensorFlow's tensors, with their gradients: each is an operation of a graph, or runs at once in eager mode.

Operations are matched between ranks by the names of their nodes, so that each rank's may become ready in an order of its own.
"""

import tensorflow as tf

from .. import _basics, _job  # noqa: F401  # programs read mpi_ops._basics
from .._basics import *  # noqa: F401,F403
from .._basics import BASICS, Adasum, Average, ReduceOp, Sum
from .._operations import check_op_of_reducescatter
from .._operations import op_of as handle_average_backwards_compatibility
from .._operations import root_of
from ..process_sets import *  # noqa: F401,F403
from ..process_sets import PROCESS_SETS, global_process_set
from ..util import num_rank_is_power_2 as check_num_rank_power_of_2  # noqa: F401
from . import adasum
from ._library import operations
from .util import node_name, normalized

__all__ = [
    *BASICS,
    *PROCESS_SETS,
    "allgather",
    "alltoall",
    "barrier",
    "broadcast",
    "broadcast_",
    "check_num_rank_power_of_2",
    "grouped_allgather",
    "handle_average_backwards_compatibility",
    "join",
    "local_rank_op",
    "local_size_op",
    "process_set_included_op",
    "rank_op",
    "size_op",
]


def _common(kind, tensors, name, ignore_name_scope, process_set):
    """Attributes that all collectives have. In a graph the node has the name; eager operations have no node."""
    # The operation itself refuses the global set where there is no job: a graph may be built before init().
    number = 0 if process_set.process_set_id == 0 else _job.current().number_of(process_set)
    attributes = {"process_set": number, "ignore_name_scope": ignore_name_scope}
    if tf.executing_eagerly():
        attributes["tensor_name"] = name or ""
    else:
        attributes["name"] = normalized(name) if name else node_name(kind, tensors)
    return attributes


def _converted(tensors):
    """For after _common(), which names nodes after variables."""
    return [tf.convert_to_tensor(tensor) for tensor in tensors]


def _scaled(tensors, factor):
    return tensors if factor == 1.0 else [tensor * tf.cast(factor, tensor.dtype) for tensor in tensors]


def _for_each_given(function, gradients):
    """function(places, the gradients that are there), and None for the others. Outputs of integers in tf.compat.v1 have no gradients."""
    there = [i for i, gradient in enumerate(gradients) if gradient is not None]
    results = dict(zip(there, function(there, [gradients[i] for i in there]))) if there else {}
    return [results.get(i) for i in range(len(gradients))]


def _allreduce_list(tensors, kind, name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set):
    tensors = list(tensors)
    common = _common(kind, tensors, name, ignore_name_scope, process_set)
    if op == Adasum:
        reduced = adasum.allreduce(_scaled(_converted(tensors), prescale_factor), common, process_set)
        return _scaled(reduced, postscale_factor)
    return operations.tutti_allreduce(
        tensors=_converted(tensors),
        reduce_op=int(ReduceOp(op)),
        prescale=prescale_factor,
        postscale=postscale_factor,
        **common,
    )


def _allreduce(
    tensor, name=None, op=Sum, prescale_factor=1.0, postscale_factor=1.0, ignore_name_scope=False, process_set=global_process_set
):
    """The reduction of a dense tensor over all members of the process set."""
    [reduced] = _allreduce_list([tensor], "Allreduce", name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set)
    return reduced


def _grouped_allreduce(
    tensors, name=None, op=Sum, prescale_factor=1.0, postscale_factor=1.0, ignore_name_scope=False, process_set=global_process_set
):
    """As _allreduce() of each tensor, communicated together or not at all. Returns a list."""
    return list(_allreduce_list(tensors, "GroupedAllreduce", name, op, prescale_factor, postscale_factor, ignore_name_scope, process_set))


def _set_of(op):
    return _job.current().sets[op.get_attr("process_set")]


@tf.RegisterGradient("TuttiAllreduce")
def _gradient_of_allreduce(op, *gradients):
    options = {
        "op": ReduceOp(op.get_attr("reduce_op")),
        "prescale_factor": op.get_attr("prescale"),
        "postscale_factor": op.get_attr("postscale"),
        "ignore_name_scope": op.get_attr("ignore_name_scope"),
        "process_set": _set_of(op),
    }
    return _for_each_given(lambda there, given: _grouped_allreduce(given, **options), gradients)


def _allgather_list(tensors, kind, name, ignore_name_scope, process_set):
    tensors = list(tensors)
    common = _common(kind, tensors, name, ignore_name_scope, process_set)
    return operations.tutti_allgather(tensors=_converted(tensors), **common)


def allgather(tensor, name=None, ignore_name_scope=False, process_set=global_process_set):
    """The tensors of all members, joined along the first dimension. Its extent may differ between ranks."""
    return _allgather_list([tensor], "Allgather", name, ignore_name_scope, process_set)[0]


def grouped_allgather(tensors, name=None, ignore_name_scope=False, process_set=global_process_set):
    """As allgather() of each tensor, communicated together or not at all. Returns a list."""
    return list(_allgather_list(tensors, "GroupedAllgather", name, ignore_name_scope, process_set))


@tf.RegisterGradient("TuttiAllgather")
def _gradient_of_allgather(op, *gradients):
    process_set, ignores = _set_of(op), op.get_attr("ignore_name_scope")

    def own_rows(there, given):
        reduced = _grouped_allreduce(given, op=Average, ignore_name_scope=ignores, process_set=process_set)
        rows = tf.stack([tf.shape(op.inputs[i])[0] for i in there])
        rows_of_all = allgather(rows[tf.newaxis], ignore_name_scope=ignores, process_set=process_set)
        first = tf.cumsum(rows_of_all, exclusive=True)[process_set.rank()]  # a slice that is empty on rank 0 would be pruned there
        return [gradient[first[i] : first[i] + rows[i]] for i, gradient in enumerate(reduced)]

    return _for_each_given(own_rows, gradients)


def _broadcast_list(tensors, kind, root_rank, name, ignore_name_scope, process_set):
    tensors = list(tensors)
    common = _common(kind, tensors, name, ignore_name_scope, process_set)
    return operations.tutti_broadcast(tensors=_converted(tensors), root=root_of(process_set, root_rank), **common)


def broadcast(tensor, root_rank, name=None, ignore_name_scope=False, process_set=global_process_set):
    """The tensor of root_rank, a rank of the job, on all members: a new tensor."""
    return _broadcast_list([tensor], "Broadcast", root_rank, name, ignore_name_scope, process_set)[0]


def broadcast_(variables, root_rank, name=None, process_set=global_process_set):
    """Gives variables the values of root_rank's. Returns the new values, as a list."""
    variables = list(variables)
    values = _broadcast_list(variables, "BroadcastInplace", root_rank, name, False, process_set)
    assigned = [variable.assign(value) for variable, value in zip(variables, values)]
    return [tf.convert_to_tensor(value) for value in assigned]


@tf.RegisterGradient("TuttiBroadcast")
def _gradient_of_broadcast(op, *gradients):
    process_set, ignores = _set_of(op), op.get_attr("ignore_name_scope")

    def of_root(there, given):
        reduced = _grouped_allreduce(given, op=Average, ignore_name_scope=ignores, process_set=process_set)
        if process_set.rank() == op.get_attr("root"):
            return reduced
        with tf.control_dependencies(reduced):  # else this rank's graph would lose the reduction, and the root would wait for it
            return [tf.zeros_like(gradient) for gradient in reduced]

    return _for_each_given(of_root, gradients)


def alltoall(tensor, splits=None, name=None, ignore_name_scope=False, process_set=global_process_set):
    """Sends splits[r] rows of the tensor to member r (None: equal parts).

    Returns the rows received and, where splits are given, how many came from each member.
    """
    common = _common("Alltoall", [tensor], name, ignore_name_scope, process_set)
    output, received_splits = operations.tutti_alltoall(
        tensor=tf.convert_to_tensor(tensor),
        splits=tf.constant([], tf.int32) if splits is None else tf.cast(splits, tf.int32),
        **common,
    )
    return output if splits is None else (output, received_splits)


@tf.RegisterGradient("TuttiAlltoall")
def _gradient_of_alltoall(op, gradient, _):
    ignores = op.get_attr("ignore_name_scope")
    return alltoall(gradient, op.outputs[1], ignore_name_scope=ignores, process_set=_set_of(op))[0], None


def _reducescatter_list(tensors, kind, name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor):
    check_op_of_reducescatter(op)
    tensors = list(tensors)
    common = _common(kind, tensors, name, ignore_name_scope, process_set)
    return operations.tutti_reducescatter(
        tensors=_converted(tensors),
        reduce_op=int(op),
        prescale=prescale_factor,
        postscale=postscale_factor,
        **common,
    )


def _reducescatter(
    tensor, name=None, op=Sum, ignore_name_scope=False, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0
):
    """This member's rows of the reduction; the first members get one row more where the rows do not divide."""
    [rows] = _reducescatter_list([tensor], "Reducescatter", name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor)
    return rows


def _grouped_reducescatter(
    tensors, name=None, op=Sum, ignore_name_scope=False, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0
):
    """As _reducescatter() of each tensor, communicated together or not at all. Returns a list."""
    return list(
        _reducescatter_list(tensors, "GroupedReducescatter", name, op, ignore_name_scope, process_set, prescale_factor, postscale_factor)
    )


@tf.RegisterGradient("TuttiReducescatter")
def _gradient_of_reducescatter(op, *gradients):
    process_set, ignores = _set_of(op), op.get_attr("ignore_name_scope")
    # As Horovod defines it: the gradient of a sum is scaled by the number of members, as allgather's is averaged.
    factor = op.get_attr("prescale") * op.get_attr("postscale")
    if op.get_attr("reduce_op") == Sum:
        factor *= process_set.size()

    def of_all(there, given):
        scaled = [gradient * tf.cast(factor, gradient.dtype) for gradient in given]
        return grouped_allgather(scaled, ignore_name_scope=ignores, process_set=process_set)

    return _for_each_given(of_all, gradients)


def join():
    """This rank has no more tensors: the others' allreduces and barriers go on without it. Gives the rank that joined last."""
    return operations.tutti_join()


def barrier(process_set=global_process_set):
    """Ends once all members have come to it: in eager mode the call, in a graph the operation that it returns."""
    return operations.tutti_barrier(**_common("Barrier", [], "barrier", False, process_set))


tf.no_gradient("TuttiJoin")
tf.no_gradient("TuttiBarrier")
tf.no_gradient("TuttiJobNumber")
_RANK, _SIZE, _LOCAL_RANK, _LOCAL_SIZE, _IS_INCLUDED = range(5)


def size_op(process_set_id=0, name=None):
    """The size of a process set, as a tensor of the time when the graph runs."""
    return operations.tutti_job_number(what=_SIZE, process_set=process_set_id, name=name)


def rank_op(name=None):
    """As rank(), when the graph runs."""
    return operations.tutti_job_number(what=_RANK, name=name)


def local_size_op(name=None):
    """As local_size(), when the graph runs."""
    return operations.tutti_job_number(what=_LOCAL_SIZE, name=name)


def local_rank_op(name=None):
    """As local_rank(), when the graph runs."""
    return operations.tutti_job_number(what=_LOCAL_RANK, name=name)


def process_set_included_op(process_set_id=0, name=None):
    """1 where this process is a member, else 0; -1 before init(), -2 for an unknown set."""
    return operations.tutti_job_number(what=_IS_INCLUDED, process_set=process_set_id, name=name)
