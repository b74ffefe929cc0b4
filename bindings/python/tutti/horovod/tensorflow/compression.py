"""Dtypes of gradients on their way between ranks."""

import tensorflow as tf

from ..compression import Compressor, NoneCompressor, make_cast_compressor  # noqa: F401


def _cast_to(name, dtype, wider):
    return make_cast_compressor(
        name, lambda tensor, target: tf.cast(tensor, dtype if target is None else target), lambda tensor: tensor.dtype.base_dtype in wider
    )


FP16Compressor = _cast_to("FP16Compressor", tf.float16, (tf.float32, tf.float64, tf.bfloat16))
BF16Compressor = _cast_to("BF16Compressor", tf.bfloat16, (tf.float32, tf.float64))


class Compression:
    """Give one to allreduce(), DistributedGradientTape() or DistributedOptimizer()."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
