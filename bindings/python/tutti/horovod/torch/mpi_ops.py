"""Collectives of PyTorch's tensors. Those that make new tensors are differentiable."""

import torch

from .. import _basics, _operations  # noqa: F401  # programs read mpi_ops._basics
from .._basics import *  # noqa: F401,F403
from .._basics import BASICS, Average, Sum
from .._basics import rank as _rank
from .._front_end import FUNCTIONS, FrontEnd
from .._operations import barrier, poll, synchronize  # noqa: F401
from ..process_sets import *  # noqa: F401,F403
from ..process_sets import PROCESS_SETS, global_process_set
from ._tensors import arrays

__all__ = [
    *BASICS,
    *FUNCTIONS,
    *PROCESS_SETS,
    "barrier",
    "join",
    "poll",
    "sparse_allreduce_async",
    "synchronize",
]


class _OfList(torch.autograd.Function):
    """A collective of FrontEnd on a list of tensors. `backward`: a function of the gradients, the rows of each input and the arguments."""

    @staticmethod
    def forward(ctx, collective, backward, arguments, *tensors):
        ctx.gradients_of, ctx.arguments = backward, arguments
        ctx.rows = [tensor.shape[0] if tensor.dim() else 0 for tensor in tensors]
        return tuple(collective(_front_end, tensors, *arguments))

    @staticmethod
    def backward(ctx, *gradients):
        gradients = [gradient.contiguous() for gradient in gradients]
        return (None, None, None, *ctx.gradients_of(gradients, ctx.rows, *ctx.arguments))


def _of_allreduce(gradients, _rows, op, prescale, postscale, _name, process_set, is_group):
    return _front_end._allreduce(gradients, op, prescale, postscale, None, process_set, is_group)


def _of_allgather(gradients, rows, _name, process_set, is_group):
    reduced = _front_end._allreduce(gradients, Average, 1.0, 1.0, None, process_set, is_group)
    [rows_of_all] = _front_end._allgather([torch.tensor([rows])], None, process_set, False)
    first_rows = rows_of_all[: process_set.rank()].sum(0).tolist()
    return [gradient.narrow(0, first, count) for gradient, first, count in zip(reduced, first_rows, rows)]


def _of_reducescatter(gradients, _rows, op, prescale, postscale, _name, process_set, is_group):
    # As Horovod defines it: the gradient of a sum is scaled by the number of members, as allgather's is averaged.
    factor = prescale * postscale * (process_set.size() if op == Sum else 1)
    return _front_end._allgather([gradient * factor for gradient in gradients], None, process_set, is_group)


class _Broadcast(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, root_rank, name, process_set):
        ctx.arguments = root_rank, process_set
        return FrontEnd._broadcast(_front_end, tensor, root_rank, name, process_set)

    @staticmethod
    def backward(ctx, gradient):
        root_rank, process_set = ctx.arguments
        [reduced] = _front_end._allreduce([gradient.contiguous()], Average, 1.0, 1.0, None, process_set, False)
        return reduced if _rank() == root_rank else torch.zeros_like(reduced), None, None, None


class _Alltoall(torch.autograd.Function):
    @staticmethod
    def forward(ctx, tensor, splits, name, process_set):
        output, received_splits = FrontEnd._alltoall(_front_end, tensor, splits, name, process_set)
        ctx.process_set, ctx.received_splits = process_set, received_splits
        ctx.mark_non_differentiable(received_splits)
        return output, received_splits

    @staticmethod
    def backward(ctx, gradient, _):
        return _front_end._alltoall(gradient.contiguous(), ctx.received_splits, None, ctx.process_set)[0], None, None, None


class _TorchFrontEnd(FrontEnd):
    def _allreduce(self, tensors, *arguments):
        return list(_OfList.apply(FrontEnd._allreduce, _of_allreduce, arguments, *tensors))

    def _allgather(self, tensors, *arguments):
        return list(_OfList.apply(FrontEnd._allgather, _of_allgather, arguments, *tensors))

    def _reducescatter(self, tensors, *arguments):
        return list(_OfList.apply(FrontEnd._reducescatter, _of_reducescatter, arguments, *tensors))

    def _broadcast(self, tensor, root_rank, name, process_set):
        return _Broadcast.apply(tensor, root_rank, name, process_set)

    def _alltoall(self, tensor, splits, name, process_set):
        return _Alltoall.apply(tensor, splits, name, process_set)


# Checked by the tensors that it is made of. Versions before 2 do not ask.
_UNCHECKED = {"check_invariants": False} if hasattr(torch.sparse, "check_sparse_tensor_invariants") else {}
_front_end = _TorchFrontEnd(arrays)
globals().update(_front_end.functions())


def sparse_allreduce_async(tensor, name, op, process_set=global_process_set):
    """Reduces a sparse tensor: gathers all members' values. Returns a function that waits and gives the sparse result."""
    indices = _front_end.allgather_async(tensor._indices().t().contiguous(), f"{name}.indices", process_set)
    values = _front_end.allgather_async(tensor._values().contiguous(), f"{name}.values", process_set)

    def wait():
        all_values = synchronize(values)
        all_indices = synchronize(indices)
        if op == Average:
            all_values = all_values / process_set.size()
        return torch.sparse_coo_tensor(all_indices.t(), all_values, tensor.size(), dtype=tensor.dtype, device=tensor.device, **_UNCHECKED)

    return wait


def join(device=-1):
    """This rank has no more tensors: the others' allreduces and barriers go on without it. Returns the rank that joined last.

    device: the number of the GPU where this rank makes zeros for the others' allreduces of tensors on GPUs. With -1 these fail.
    """
    if device < 0:
        return _operations.join()
    return _operations.join(lambda count: torch.zeros(count, dtype=torch.uint8, device=f"cuda:{device}"))
