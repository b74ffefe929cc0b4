"""Variables and Python objects, from one rank to all."""

import tensorflow as tf

from .. import _objects
from ..process_sets import global_process_set
from .mpi_ops import broadcast, broadcast_


def broadcast_variables(variables, root_rank, process_set=global_process_set, inplace=False):
    """Gives variables the values of root_rank's: in eager mode at once, in a graph by the operation that this returns.

    inplace: accepted as Horovod has it; values are not copied but for the communication.
    """
    variables = list(variables)
    if not variables:
        return None if tf.executing_eagerly() else tf.no_op()
    if tf.executing_eagerly():
        broadcast_(variables, root_rank, process_set=process_set)
        return None
    # In a graph each variable is communicated when it is initialized.
    return tf.group(*[variable.assign(broadcast(variable, root_rank, process_set=process_set)) for variable in variables])


def broadcast_object(obj, root_rank=0, session=None, name=None, process_set=global_process_set):
    """The object of root_rank, a rank of the job, on all members. It is pickled: give none that ranks do not trust.

    session: accepted as Horovod has it; the object does not pass through TensorFlow.
    """
    return _objects.broadcast_object(obj, root_rank, name, process_set)


def broadcast_object_fn(root_rank=0, session=None, name=None, process_set=global_process_set):
    """A function that broadcasts the object that it is given, as broadcast_object()."""

    def broadcast_it(obj):
        return broadcast_object(obj, root_rank, session, name or "broadcast_object_fn", process_set)

    return broadcast_it


def allgather_object(obj, session=None, name=None, process_set=global_process_set):
    """The objects of all members, as a list in rank order."""
    return _objects.allgather_object(obj, name, process_set)


def broadcast_global_variables(root_rank):
    """In a graph of tf.compat.v1: the operation that gives all global variables the values of root_rank's."""
    if tf.executing_eagerly():
        raise RuntimeError(
            "hvd.broadcast_global_variables() does not support eager execution. Please use "
            "`hvd.broadcast_variables(<model/optimizer variables>)` instead."
        )
    return broadcast_variables(tf.compat.v1.global_variables(), root_rank)


class BroadcastGlobalVariablesHook(tf.compat.v1.train.SessionRunHook):
    """For MonitoredTrainingSession: all ranks begin with root_rank's variables, whether initialized or read from a checkpoint.

    device: where TensorFlow places what surrounds the operation.
    """

    def __init__(self, root_rank, device=""):
        super().__init__()
        self.root_rank = root_rank
        self.bcast_op = None
        self.device = device

    def begin(self):
        if self.bcast_op is None or self.bcast_op.graph != tf.compat.v1.get_default_graph():
            with tf.device(self.device):
                self.bcast_op = broadcast_global_variables(self.root_rank)

    def after_create_session(self, session, coord):
        session.run(self.bcast_op)
