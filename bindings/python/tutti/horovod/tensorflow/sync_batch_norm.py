"""Batch normalization over the batches of all ranks, as a layer of Keras."""

import tensorflow as tf

from .._basics import Average
from .mpi_ops import _allreduce, size

_HAS_FUSED = not hasattr(tf.keras, "__version__")  # before Keras 3


class SyncBatchNormalization(tf.keras.layers.BatchNormalization):
    """As Keras' BatchNormalization; in training its mean and variance are those of all ranks, whose batches have equal sizes."""

    def __init__(self, fused=False, **kwargs):
        if fused is not False:
            raise ValueError("SyncBatchNormalization does not support fused=True.")
        super().__init__(**({"fused": False} if _HAS_FUSED else {}), **kwargs)

    def _moments(self, *args, **kwargs):
        mean, variance = super()._moments(*args, **kwargs)
        if size() == 1:
            return mean, variance
        mean, mean_of_squares = tf.unstack(_allreduce(tf.stack([mean, variance + tf.square(mean)]), op=Average))
        return mean, mean_of_squares - tf.square(mean)
