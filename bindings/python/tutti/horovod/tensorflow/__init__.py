"""Horovod's interface for TensorFlow over tutti.

    import tutti.horovod.tensorflow as hvd

    hvd.init()
    tape = hvd.DistributedGradientTape(tape)
    hvd.broadcast_variables(model.variables, root_rank=0)

Works with TensorFlow 2.15 to 2.21, eagerly, in tf.function and in graphs of tf.compat.v1. docs/horovod.md has the rest.
"""

from .._launch import run
from ..exceptions import HorovodInternalError, HostsUpdatedInterrupt
from ..util import gpu_available, split_list
from . import elastic
from .compression import Compression
from .functions import (
    BroadcastGlobalVariablesHook,
    allgather_object,
    broadcast_global_variables,
    broadcast_object,
    broadcast_object_fn,
    broadcast_variables,
)
from .mpi_ops import *  # noqa: F401,F403
from .optimizer import DistributedOptimizer
from .reductions import allreduce, grouped_allreduce, grouped_reducescatter, reducescatter
from .tape import DistributedGradientTape, PartialDistributedGradientTape
from .util import _executing_eagerly


def __getattr__(name):
    """Layers of Keras, whose import takes seconds."""
    if name != "SyncBatchNormalization":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .sync_batch_norm import SyncBatchNormalization

    return SyncBatchNormalization
