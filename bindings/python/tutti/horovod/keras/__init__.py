"""Horovod's interface for Keras over tutti: Keras 3 on the backends tensorflow, jax and torch, and Keras 2.

    import keras
    import tutti.horovod.keras as hvd

    hvd.init()
    optimizer = hvd.DistributedOptimizer(keras.optimizers.SGD(0.01 * hvd.size()))
    model.compile(optimizer=optimizer, loss="sparse_categorical_crossentropy")
    model.fit(images, labels, callbacks=[hvd.callbacks.BroadcastGlobalVariablesCallback(0)])

docs/horovod.md has the rest.
"""

import keras

from .. import allgather_object, broadcast_object
from .._basics import *  # noqa: F401,F403
from .._keras.interface import KerasInterface
from .._launch import run
from .._operations import barrier, join
from ..exceptions import HorovodInternalError, HostsUpdatedInterrupt
from ..process_sets import ProcessSet, add_process_set, get_process_set_ids_and_ranks, global_process_set, remove_process_set
from . import callbacks, elastic

globals().update(KerasInterface(keras).functions())
