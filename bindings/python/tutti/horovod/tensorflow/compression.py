"""Dtypes of gradients on their way between ranks."""

import tensorflow as tf

from ..compression import Compressor, NoneCompressor, make_cast_compressor  # noqa: F401


def _dtype_of(tensor):
    return tensor.dtype.base_dtype  # variables of tf.compat.v1 have dtypes of references


FP16Compressor = make_cast_compressor("FP16Compressor", tf.float16, (tf.float32, tf.float64, tf.bfloat16), tf.cast, _dtype_of)
BF16Compressor = make_cast_compressor("BF16Compressor", tf.bfloat16, (tf.float32, tf.float64), tf.cast, _dtype_of)


class Compression:
    """Give one to allreduce(), DistributedGradientTape() or DistributedOptimizer()."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
