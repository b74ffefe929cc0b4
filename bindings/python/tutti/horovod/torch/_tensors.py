"""Tensors of PyTorch. See _operations.Arrays."""

import torch

from .._operations import Arrays


class TorchArrays(Arrays):
    def view(self, tensor, reduces=False):
        if tensor.is_sparse:
            raise ValueError(f"Tensor type {tensor.type()} is not supported.")
        if not tensor.is_contiguous():
            raise ValueError("Tensor is required to be contiguous.")
        tensor = tensor.detach()
        if tensor.dtype is not torch.bool:
            return tensor
        if reduces:
            raise ValueError(f"Tensor type {tensor.type()} is not supported.")
        return tensor.view(torch.uint8)

    def empty(self, like, shape):
        return torch.empty(shape, dtype=like.dtype, device=like.device)

    def is_floating(self, tensor):
        return tensor.is_floating_point() or tensor.is_complex()

    def scaled(self, tensor, factor):
        return (tensor.to(torch.float64) * factor).to(tensor.dtype)

    def floor_divide(self, tensor, divisor):
        tensor.floor_divide_(divisor)

    def assign(self, tensor, value):
        with torch.no_grad():
            tensor.copy_(value)

    def stream(self, tensor):
        return torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None

    def splits(self, splits):
        if not isinstance(splits, torch.Tensor):
            return [int(rows) for rows in splits]
        if splits.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"alltoall: splits: expected integers of 32 or 64 bits, got {splits.dtype}")
        return splits.tolist()

    def received_splits(self, rows, splits):
        if isinstance(splits, torch.Tensor):
            return torch.tensor(rows, dtype=splits.dtype, device=splits.device)
        return torch.tensor(rows, dtype=torch.int32)

    def flat(self, tensor):
        tensor = tensor.detach().reshape(-1).cpu()
        return (tensor.float() if tensor.dtype is torch.bfloat16 else tensor).numpy()

    def assign_flat(self, tensor, values):
        self.assign(tensor, torch.from_numpy(values).reshape(tensor.shape))


arrays = TorchArrays()
