"""Horovod's interface for PyTorch over tutti.

    import tutti.horovod.torch as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters())
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    hvd.broadcast_optimizer_state(optimizer, root_rank=0)

Works with every torch from 1.13, whichever tutti was built with. docs/horovod.md has the rest.
"""

from .._launch import run
from ..exceptions import HorovodInternalError, HostsUpdatedInterrupt
from . import elastic
from .compression import Compression
from .functions import allgather_object, broadcast_object, broadcast_optimizer_state, broadcast_parameters
from .mpi_ops import *  # noqa: F401,F403
from .optimizer import DistributedOptimizer
from .sync_batch_norm import SyncBatchNorm
