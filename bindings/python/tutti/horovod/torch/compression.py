"""Dtypes of gradients on their way between ranks."""

import torch

from ..compression import Compressor, NoneCompressor, make_cast_compressor  # noqa: F401


def _cast_to(name, dtype, wider):
    return make_cast_compressor(
        name, lambda tensor, target: tensor.to(dtype if target is None else target), lambda tensor: tensor.dtype in wider
    )


FP16Compressor = _cast_to("FP16Compressor", torch.float16, (torch.float32, torch.float64, torch.bfloat16))
BF16Compressor = _cast_to("BF16Compressor", torch.bfloat16, (torch.float32, torch.float64))


class Compression:
    """Give one to allreduce() or DistributedOptimizer()."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
