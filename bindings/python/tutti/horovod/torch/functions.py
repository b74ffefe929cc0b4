"""State of models and optimizers, and Python objects, from one rank to all."""

import collections

import torch

from .._objects import allgather_object, broadcast_object  # noqa: F401
from .mpi_ops import broadcast_async_, synchronize


def broadcast_parameters(params, root_rank):
    """Copies tensors of root_rank into those of all ranks: a model.state_dict(), named_parameters() or parameters()."""
    if isinstance(params, dict):
        params = sorted(params.items())
    elif isinstance(params, (list, tuple)) or hasattr(params, "__next__"):
        params = [entry if isinstance(entry, tuple) else (None, entry) for entry in params]
    else:
        raise ValueError(f"invalid params of type: {type(params)}")
    copies = []
    for name, tensor in params:
        if not isinstance(tensor, torch.Tensor):
            continue  # extra state of modules; see broadcast_object
        contiguous = tensor.detach().contiguous()
        copies.append((tensor, contiguous, broadcast_async_(contiguous, root_rank, name)))
    for tensor, contiguous, handle in copies:
        synchronize(handle)
        if contiguous.data_ptr() != tensor.data_ptr():
            with torch.no_grad():
                tensor.copy_(contiguous)


def broadcast_optimizer_state(optimizer, root_rank, model=None):
    """Copies the state and the options of root_rank's optimizer to all ranks.

    An optimizer that has no state yet gets it by one step with gradients of zero, which leaves parameters as they are. model: tells
    which parameters have sparse gradients. Errors: ValueError for LBFGS, whose state has no fixed form.
    """
    if isinstance(optimizer, torch.optim.LBFGS):
        raise ValueError("cannot broadcast torch.optim.LBFGS state")
    if not optimizer.state_dict()["state"]:
        _make_state(optimizer, _sparse_parameters(model))
    state_dict = optimizer.state_dict()
    if not state_dict["state"]:
        return  # it keeps none
    tensors, others = [], {}
    occurrences = collections.Counter()
    for index, group in enumerate(state_dict["param_groups"]):
        for option, value in group.items():
            if option != "params":
                others["option", index, option] = value
        for number in group["params"]:
            for key, value in state_dict["state"].get(number, {}).items():
                occurrences[key] += 1
                # A step count of newer versions is a tensor of the CPU without dimensions.
                if isinstance(value, torch.Tensor):
                    tensors.append((f"{key}.{occurrences[key]}", value))
                else:
                    others["state", number, key] = value
    broadcast_parameters(tensors, root_rank)
    others = broadcast_object(others, root_rank, name="optimizer_state")
    for (kind, number, key), value in others.items():
        if kind == "option":
            optimizer.param_groups[number][key] = value
        else:
            state_dict["state"][number][key] = value
    if any(kind == "state" for kind, _, _ in others):
        _load(optimizer, state_dict)


def _load(optimizer, state_dict):
    for index, group in enumerate(optimizer.param_groups):
        state_dict["param_groups"][index].update({key: value for key, value in group.items() if key != "params"})
    optimizer.load_state_dict(state_dict)


def _sparse_parameters(model):
    modules = [] if model is None else model.modules()
    return {
        id(p)
        for module in modules
        if isinstance(module, (torch.nn.Embedding, torch.nn.EmbeddingBag)) and module.sparse
        for p in module.parameters()
    }


def _make_state(optimizer, sparse):
    """One step with gradients of zero, by the optimizer itself: DistributedOptimizer's step() would wait for other ranks."""
    saved = [(p, p.grad, p.detach().clone()) for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    for parameter, _, _ in saved:
        parameter.grad = torch.zeros_like(parameter)
        if isinstance(optimizer, torch.optim.SparseAdam) or (isinstance(optimizer, torch.optim.SGD) and id(parameter) in sparse):
            parameter.grad = parameter.grad.to_sparse()
    getattr(optimizer, "step_without_communication", optimizer.step)()
    with torch.no_grad():
        for parameter, gradient, value in saved:
            parameter.copy_(value)  # weight decay changes it
            if gradient is not None:
                parameter.grad = gradient
