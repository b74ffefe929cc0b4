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

from .._keras.interface import KerasInterface
from .._keras.names import *  # noqa: F401,F403
from . import callbacks, elastic

globals().update(KerasInterface(keras).functions())
