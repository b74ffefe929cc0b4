"""Dtypes of gradients on their way between ranks."""

import torch

from ..compression import Compressor, NoneCompressor, make_cast_compressor  # noqa: F401

FP16Compressor = make_cast_compressor("FP16Compressor", torch.float16, (torch.float32, torch.float64, torch.bfloat16), torch.Tensor.to)
BF16Compressor = make_cast_compressor("BF16Compressor", torch.bfloat16, (torch.float32, torch.float64), torch.Tensor.to)


class Compression:
    """Give one to allreduce() or DistributedOptimizer()."""

    none = NoneCompressor
    fp16 = FP16Compressor
    bf16 = BF16Compressor
