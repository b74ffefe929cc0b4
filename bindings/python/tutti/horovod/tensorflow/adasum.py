"""Adasum of TensorFlow's tensors: pairs of ranks exchange vectors, and TensorFlow combines them. See .._adasum for the method."""

import tensorflow as tf

from .. import _adasum, _job
from ._library import follower, operations


class _Levels:
    """The pairs of this rank, as process sets of the native library. The user's sets have positive numbers."""

    def __init__(self, pairs):
        self.numbers = []
        for level, pair in enumerate(pairs.levels):
            self.numbers.append(-1 - level)
            follower.add(self.numbers[-1], pair.group.rank, pair.group.size, pair.queue)

    def close(self):
        """Nothing: the native library forgets its sets with the job."""


def _levels_of(job):
    pairs = _adasum.pairs_of(job)
    return job.resource("adasum of tensorflow", lambda _: _Levels(pairs)).numbers


def _combine(low, high):
    """Products are summed in double precision."""
    wide_low, wide_high = tf.cast(low, tf.float64), tf.cast(high, tf.float64)
    dot = tf.reduce_sum(wide_low * wide_high)
    low_factor = 1 - tf.math.divide_no_nan(dot, 2 * tf.reduce_sum(tf.square(wide_low)))
    high_factor = 1 - tf.math.divide_no_nan(dot, 2 * tf.reduce_sum(tf.square(wide_high)))
    return tf.cast(low_factor * wide_low + high_factor * wide_high, low.dtype)


def allreduce(tensors, attributes, process_set):
    """The Adasum of each tensor. attributes: those of the exchanges. Errors: NotImplementedError.

    The gradient is the Adasum of the gradients, as Horovod defines it.
    """
    _adasum.check(process_set)
    levels = _levels_of(_job.current())
    names = {key: attributes[key] + "_gradient" for key in ("name", "tensor_name") if attributes.get(key)}

    @tf.custom_gradient
    def reduce(*inputs):
        vectors = [tf.reshape(tensor, [-1]) for tensor in inputs]
        for number in levels:
            both = operations.tutti_allgather(tensors=vectors, **{**attributes, "process_set": number})
            vectors = [_combine(*tf.split(pair, 2)) for pair in both]
        outputs = [tf.reshape(vector, tf.shape(tensor)) for vector, tensor in zip(vectors, inputs)]
        return outputs, lambda *gradients: allreduce(gradients, {**attributes, **names}, process_set)

    return reduce(*tensors)
