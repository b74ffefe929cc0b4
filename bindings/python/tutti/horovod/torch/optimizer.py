"""An optimizer whose gradients are reduced over all ranks, while the rest of them is computed."""

import contextlib
import warnings

import torch

from .._basics import Adasum, Average, size
from .._gradients import checked_groups, options_of
from ..process_sets import global_process_set
from ..util import split_list
from .compression import Compression
from .functions import broadcast_object
from .mpi_ops import allreduce_async_, grouped_allreduce_async_, sparse_allreduce_async, synchronize

_TOO_MANY_PASSES = (
    "Gradients were computed more than backward_passes_per_step times before call to step(). "
    "Increase backward_passes_per_step to accumulate gradients locally."
)
_EARLY_ZERO_GRAD = (
    "optimizer.zero_grad() was called after loss.backward() but before optimizer.step() or optimizer.synchronize(). "
    "This is prohibited as it can cause a race condition."
)


class _Hooked:
    """What both optimizers have: names of parameters, counts of backward passes, and hooks that submit gradients. A mix-in."""

    def _set_up(self, named_parameters, compression, backward_passes_per_step):
        self._compression = compression
        self._parameter_names = self._names_of(named_parameters)
        self.backward_passes_per_step = backward_passes_per_step
        self._passes_left = dict.fromkeys(self._parameter_names, backward_passes_per_step)
        self._handles = {}  # parameter, or group of parameters: (handle, context of the compression)
        self._requires_update = set()
        self._hooks = []

    def _names_of(self, named_parameters):
        parameters = [p for group in self.param_groups for p in group["params"]]
        if named_parameters is None:
            return {p: f"allreduce.noname.{i}.{j}" for i, group in enumerate(self.param_groups) for j, p in enumerate(group["params"])}
        named_parameters = list(named_parameters)
        if any(not isinstance(entry, tuple) for entry in named_parameters):
            raise ValueError(
                "named_parameters should be a sequence of tuples (name, parameter), usually produced by model.named_parameters()."
            )
        names = [name for name, _ in named_parameters]
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise ValueError(f"Parameter names in named_parameters must be unique. Found duplicates: {', '.join(duplicates)}")
        named = {id(p) for _, p in named_parameters}
        unnamed = [str(id(p)) for p in parameters if id(p) not in named]
        if unnamed:
            raise ValueError(
                "named_parameters was specified, but one or more model parameters were not named. "
                f"Python object ids: {', '.join(unnamed)}"
            )
        return {p: name for name, p in named_parameters}

    def set_backward_passes_per_step(self, passes):
        """How many backward passes are summed on this rank before gradients are reduced."""
        self.backward_passes_per_step = passes
        self._passes_left = dict.fromkeys(self._passes_left, passes)

    def _register_hooks(self):
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.requires_grad:
                    self._requires_update.add(parameter)
                    self._hooks.append(_after_accumulation(parameter, self._on_gradient))

    def _on_gradient(self, parameter):
        if self._passes_left[parameter] <= 0:
            raise AssertionError(_TOO_MANY_PASSES)
        self._passes_left[parameter] -= 1
        if self._passes_left[parameter] == 0:
            self._submit(parameter)

    def _submit(self, parameter):
        raise NotImplementedError

    def zero_grad(self, *args, **kwargs):
        if self._handles:
            raise AssertionError(_EARLY_ZERO_GRAD)
        return super(self.__class__, self).zero_grad(*args, **kwargs)

    def load_state_dict(self, *args, **kwargs):
        self._handles = {}
        self._passes_left = dict.fromkeys(self._passes_left, self.backward_passes_per_step)
        super(self.__class__, self).load_state_dict(*args, **kwargs)

    def step_without_communication(self, closure=None):
        """The step of the wrapped optimizer alone."""
        return super(self.__class__, self).step(closure)


def _after_accumulation(parameter, function):
    """Calls function(parameter) whenever its gradient is complete. Returns what keeps the hook alive."""
    if hasattr(parameter, "register_post_accumulate_grad_hook"):
        return parameter.register_post_accumulate_grad_hook(function)
    accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
    accumulator.register_hook(lambda *_: function(parameter))
    return accumulator


class _DistributedOptimizer(_Hooked):
    def __init__(
        self,
        params,
        named_parameters,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        groups,
        sparse_as_dense,
        process_set,
    ):
        super(self.__class__, self).__init__(params)
        self._set_up(named_parameters, compression, backward_passes_per_step)
        self.op = op
        self.gradient_predivide_factor = gradient_predivide_factor
        self.sparse_as_dense = sparse_as_dense
        self.process_set = process_set
        self._synchronized = False
        self._should_synchronize = True
        self._group_of = {}
        self._left_of_group = {}
        _check_groups(groups)
        if process_set.included() and size() > 1:
            if groups is not None:
                self._make_groups(groups)
            self._register_hooks()

    def _make_groups(self, groups):
        parameters = [p for group in self.param_groups for p in group["params"] if p.requires_grad]
        if isinstance(groups, list):
            trained = {id(p) for p in parameters}
            lists = [[p for p in group if id(p) in trained] for group in groups]
            grouped = {id(p) for group in lists for p in group}
            lists += [[p] for p in parameters if id(p) not in grouped]
        else:
            # The order of the first member, so that all ranks form equal groups.
            names = [self._parameter_names[p] for p in parameters]
            names = broadcast_object(names, self.process_set.ranks[0], "groups of DistributedOptimizer", self.process_set)
            place = {name: i for i, name in enumerate(names)}
            parameters.sort(key=lambda p: place[self._parameter_names[p]])
            lists = split_list(parameters, groups)
        for members in map(tuple, filter(None, lists)):
            self._left_of_group[members] = len(members)
            self._group_of.update(dict.fromkeys(members, members))

    def _reduction_options(self):
        return options_of(self.op, self.gradient_predivide_factor, self.process_set)

    def _submit(self, parameter):
        group = self._group_of.get(parameter)
        if group is None:
            self._handles[parameter] = self._start(parameter)
            return
        self._left_of_group[group] -= 1
        if self._left_of_group[group] == 0:
            self._start_group(group)

    def _start(self, parameter):
        gradient = _gradient_of(parameter)
        name = self._parameter_names[parameter]
        if gradient.is_sparse:
            if not self.sparse_as_dense:
                return sparse_allreduce_async(gradient.coalesce(), name, self.op, self.process_set), None
            gradient = gradient.to_dense()
        tensor, context = self._compression.compress(gradient.contiguous())
        return allreduce_async_(tensor, name=name, **self._reduction_options()), context

    def _start_group(self, group):
        self._left_of_group[group] = 0
        compressed = [self._compression.compress(_gradient_of(p).contiguous()) for p in group]
        tensors, contexts = zip(*compressed)
        self._handles[group] = (
            grouped_allreduce_async_(tensors, name=self._parameter_names[group[0]], **self._reduction_options()),
            contexts,
        )

    def synchronize(self):
        """Waits until all gradients are reduced. Parameters without a gradient take part with zeros: other ranks may have one."""
        if not self.process_set.included():
            self._synchronized = True
            return
        for parameter in [p for names in self.param_groups for p in names["params"] if p in self._requires_update]:
            group = self._group_of.get(parameter)
            if group is None and parameter not in self._handles:
                self._handles[parameter] = self._start(parameter)
            elif group is not None and group not in self._handles:
                self._start_group(group)
        handles, self._handles = self._handles, {}
        for key, (handle, context) in handles.items():
            if isinstance(key, tuple):
                for parameter, output, its_context in zip(key, synchronize(handle), context):
                    self._finish(parameter, self._compression.decompress(output, its_context))
                self._left_of_group[key] = len(key)
            else:
                output = handle() if callable(handle) else synchronize(handle)
                self._finish(key, output if callable(handle) else self._compression.decompress(output, context))
        self._synchronized = True

    def _finish(self, parameter, gradient):
        self._passes_left[parameter] = self.backward_passes_per_step
        if parameter.grad.is_sparse:
            parameter.grad = gradient if gradient.is_sparse else gradient.to_sparse()
        elif gradient.data_ptr() != parameter.grad.data_ptr():
            parameter.grad.copy_(gradient)

    @contextlib.contextmanager
    def skip_synchronize(self):
        """step() in it does not wait again: after synchronize(), such as for clipping gradients."""
        self._should_synchronize = False
        try:
            yield
        finally:
            self._should_synchronize = True

    def step(self, closure=None):
        """Waits for the gradients and updates the parameters."""
        if self._should_synchronize:
            if self._synchronized:
                warnings.warn(
                    "optimizer.step() called without optimizer.skip_synchronize() context after optimizer.synchronize(). "
                    "This can cause training slowdown. You may want to consider using optimizer.skip_synchronize() context "
                    "if you use optimizer.synchronize() in your code."
                )
            self.synchronize()
        self._synchronized = False
        return self.step_without_communication(closure)


def _gradient_of(parameter):
    if parameter.grad is None:
        parameter.grad = torch.zeros_like(parameter)
    return parameter.grad


def _check_groups(groups):
    if groups is None:
        return
    if not isinstance(groups, list):
        if not isinstance(groups, int) or groups <= 0:
            raise ValueError("groups should be a non-negative integer or a list of list of torch.Tensor.")
        return
    seen = set()
    for parameter in (p for group in groups for p in group):
        if not isinstance(parameter, torch.Tensor):
            raise ValueError("groups must consist of torch.Tensor.")
        if id(parameter) in seen:
            raise ValueError("A parameter can only appear once in groups.")
        seen.add(id(parameter))


class _DistributedAdasumOptimizer(_Hooked):
    """Combines what a step of each rank changes, in place of gradients: momentum and learning rate are in it."""

    def __init__(self, params, named_parameters, compression, backward_passes_per_step):
        super(self.__class__, self).__init__(params)
        self._set_up(named_parameters, compression, backward_passes_per_step)
        self._starts = {p: torch.zeros_like(p) for p in self._parameter_names}
        self._register_hooks()

    def _submit(self, parameter):
        _gradient_of(parameter)
        start = self._starts[parameter]
        groups = [group["params"] for group in self.param_groups]
        with torch.no_grad():
            start.copy_(parameter)
            for group in self.param_groups:
                group["params"] = [p for p in group["params"] if p is parameter]
            try:
                self.step_without_communication()
            finally:
                for group, params in zip(self.param_groups, groups):
                    group["params"] = params
            parameter.sub_(start)
            tensor, context = self._compression.compress(parameter.detach())
        self._handles[parameter] = allreduce_async_(tensor, name=self._parameter_names[parameter], op=Adasum), context

    def synchronize(self):
        """Nothing: step() waits."""

    @contextlib.contextmanager
    def skip_synchronize(self):
        raise AssertionError("Skipping synchronization is not supported when using Adasum optimizer.")
        yield  # pylint: disable=unreachable

    def step(self, closure=None):
        """Waits for the combined changes and adds them to the parameters."""
        loss = None if closure is None else closure()
        for parameter in [p for group in self.param_groups for p in group["params"] if p in self._requires_update]:
            if parameter not in self._handles:
                self._submit(parameter)
        handles, self._handles = self._handles, {}
        with torch.no_grad():
            for parameter, (handle, context) in handles.items():
                change = self._compression.decompress(synchronize(handle), context)
                torch.add(self._starts[parameter], change, out=parameter)
                self._passes_left[parameter] = self.backward_passes_per_step
        return loss


def DistributedOptimizer(  # pylint: disable=invalid-name
    optimizer,
    named_parameters=None,
    compression=Compression.none,
    backward_passes_per_step=1,
    op=Average,
    gradient_predivide_factor=1.0,
    num_groups=0,
    groups=None,
    sparse_as_dense=False,
    process_set=global_process_set,
):
    """Wraps an optimizer: gradients are reduced over all ranks as backward() computes them, and step() waits for them.

    The result has the class name, the parameters and the options of the optimizer, and its state from now on.

    named_parameters: model.named_parameters(); names match ranks. compression: Compression.none, fp16 or bf16.
    backward_passes_per_step: passes that are summed on each rank first. op: Average, Sum or Adasum.
    gradient_predivide_factor: the average divides by it before the sum, and by size / factor after it. groups: how many groups, or lists
    of parameters, that are communicated together (num_groups: its old name). sparse_as_dense: reduces sparse gradients as dense ones.
    process_set: whose ranks take part. Errors: ValueError.
    """
    groups = checked_groups(op, gradient_predivide_factor, num_groups, groups)
    if backward_passes_per_step <= 0:
        raise ValueError("backward_passes_per_step must be > 0")
    is_adasum = op == Adasum and size() > 1
    if is_adasum and process_set is not global_process_set:
        raise NotImplementedError("Adasum does not support non-global process sets yet.")
    kind = _DistributedAdasumOptimizer if is_adasum else _DistributedOptimizer
    # The optimizer's own class is the base, so that isinstance() and schedulers see what they know.
    members = {**_Hooked.__dict__, **kind.__dict__}
    members = {name: member for name, member in members.items() if name not in ("__dict__", "__weakref__")}
    cls = type(optimizer.__class__.__name__, (optimizer.__class__,), members)
    if is_adasum:
        return cls(optimizer.param_groups, named_parameters, compression, backward_passes_per_step)
    return cls(
        optimizer.param_groups,
        named_parameters,
        compression,
        backward_passes_per_step,
        op,
        gradient_predivide_factor,
        groups,
        sparse_as_dense,
        process_set,
    )
