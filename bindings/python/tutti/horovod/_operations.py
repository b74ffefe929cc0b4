"""Collectives by name, for arrays of any framework. A front end gives an Arrays object and passes its own arrays through.

An operation is a handle: an integer that poll() and synchronize() take. Names match ranks: see _job.Membership.
"""

import itertools
import threading
import warnings

import tutti

from . import _adasum, _job
from ._basics import Adasum, Average, Max, Min, Product, Sum
from .exceptions import HorovodInternalError
from .process_sets import global_process_set

OP_NAMES = {Average: "avg", Sum: "sum", Min: "min", Max: "max", Product: "prod"}


class Arrays:
    """How a framework's arrays are read and made. See torch/_tensors.py."""

    def input(self, tensor):
        """A caller's argument, as an array whose elements lie row after row where the framework does that by itself."""
        return tensor

    def view(self, tensor, reduces=False):
        """What tutti takes: the same memory. Errors: ValueError where it cannot be communicated."""
        raise NotImplementedError

    def shape(self, tensor):
        return tuple(tensor.shape)

    def empty(self, like, shape):
        """A new array with the dtype and the place of `like`."""
        raise NotImplementedError

    def is_floating(self, tensor):
        raise NotImplementedError

    def scaled(self, tensor, factor):
        """tensor * factor, computed in double precision where the dtype is an integer; a new array of the same dtype."""
        raise NotImplementedError

    def floor_divide(self, tensor, divisor):
        """Divides integers in place, rounding down."""
        raise NotImplementedError

    def assign(self, tensor, value):
        """Writes value into tensor."""
        raise NotImplementedError

    def stream(self, tensor):
        """The CUDA stream that has filled the tensor; None for the CPU's."""
        return None

    def splits(self, splits):
        """A caller's splits, as a list of integers."""
        raise NotImplementedError

    def received_splits(self, rows, splits):
        """Received rows, in the form of the caller's splits."""
        raise NotImplementedError

    def flat(self, tensor):
        """A flat numpy array of the values, in a dtype that numpy computes with."""
        raise NotImplementedError

    def assign_flat(self, tensor, values):
        """Writes such values into the tensor."""
        raise NotImplementedError


class Operation:
    """Under way until all parts are complete. `result` is what synchronize() returns."""

    def __init__(self, parts, result, finish=None):
        self.parts = parts  # Works of tutti, or futures of Adasum
        self.result = result
        self.finish = finish  # called without arguments once all parts are complete

    def test(self):
        return all(part.test() for part in self.parts)

    def wait(self):
        for part in self.parts:
            part.wait()
        if self.finish is not None:
            self.finish()
        return self.result() if callable(self.result) else self.result


_operations = {}
_numbers = itertools.count()
_lock = threading.Lock()


def keep(operation):
    """The handle of an operation."""
    with _lock:
        handle = next(_numbers)
        _operations[handle] = operation
    return handle


def poll(handle):
    """Whether an operation is complete; synchronize() then returns at once. Errors: ValueError for a handle that is not under way."""
    operation = _operations.get(handle)
    if operation is None:
        raise ValueError(f"Handle {handle} was not created or has been cleared.")
    return operation.test()


def synchronize(handle):
    """Waits for an operation and returns its result; None for a handle that was waited for. Errors: HorovodInternalError."""
    with _lock:
        operation = _operations.pop(handle, None)
    if operation is None:
        return None
    try:
        return operation.wait()
    except tutti.Error as error:
        raise HorovodInternalError(str(error)) from error


def first(handle):
    """The handle, whose result becomes the only element of the list that it was."""
    operation = _operations[handle]
    outputs = operation.result
    operation.result = lambda: outputs[0]
    return handle


def op_of(op, average):
    """The reduction that a call asks for; `average` is its old form."""
    if op is not None:
        if average is not None:
            raise ValueError("The op parameter supersedes average. Please provide only one of them.")
        return op
    if average is None:
        return Average
    warnings.warn("Parameter `average` has been replaced with `op` and will be removed in v1.0", DeprecationWarning, stacklevel=4)
    return Average if average else Sum


def root_of(process_set, root_rank):
    """The member that a broadcast's root_rank, a rank of the job, means. Errors: ValueError."""
    if root_rank not in process_set.ranks:
        raise ValueError(f"broadcast received invalid root rank {root_rank} for provided process set {process_set}")
    return process_set.ranks.index(root_rank)


def check_op_of_reducescatter(op):
    """Errors: HorovodInternalError."""
    if op not in (Average, Sum):
        raise HorovodInternalError(f"reducescatter: op {op!r}: expected Average or Sum")


def submit(membership, name, *arguments, **options):
    """TensorQueue.submit() with Horovod's exceptions: ValueError for arguments, such as a name that is under way."""
    try:
        return membership.queue.submit(name, *arguments, **options)
    except tutti.InvalidArgumentError:
        raise
    except tutti.Error as error:
        raise HorovodInternalError(str(error)) from error


def _group_options(names, base):
    return {"batch": base, "batch_size": len(names)} if len(names) > 1 else {}


def _member_names(base, count):
    return [base] if count == 1 else [f"{base}_{i + 1}of{count}" for i in range(count)]


def allreduce(
    arrays, tensors, outputs, op, prescale=1.0, postscale=1.0, name=None, process_set=global_process_set, is_group=False, priority=0
):
    """Reduces each tensor into its output; equal objects: in place. A group is communicated together, or not at all."""
    if op == Adasum:
        _adasum.check(process_set)
    elif op not in OP_NAMES:
        raise ValueError(f"allreduce: op {op!r}: expected Average, Sum, Adasum, Min, Max or Product")
    membership = _job.current().membership(process_set)
    for tensor in tensors:
        arrays.view(tensor, reduces=True)  # before any is submitted
    base = membership.name_of("grouped_allreduce" if is_group else "allreduce", name)
    names = _member_names(base, len(tensors))
    if op == Adasum:
        parts = [
            _adasum.start(arrays, entry, tensor, output, prescale, postscale) for entry, tensor, output in zip(names, tensors, outputs)
        ]
        return keep(Operation(parts, outputs))
    reduction = _Reduction(arrays, op, prescale, postscale, process_set)
    parts = []
    for entry, tensor, output in zip(names, tensors, outputs):
        view, options = reduction.of(tensor, output)
        options.update(_group_options(names, base), priority=priority, stream=arrays.stream(tensor))
        parts.append(submit(membership, entry, view, arrays.view(output, reduces=True), **options))
    return keep(Operation(parts, outputs, reduction.finish))


class _Reduction:
    """How a tensor is reduced. The runtime scales floats alone: integers are scaled here, and averaged by a division that rounds down."""

    def __init__(self, arrays, op, prescale, postscale, process_set):
        self.arrays, self.op, self.prescale, self.postscale = arrays, op, prescale, postscale
        self.size = process_set.size()
        self.late = []  # outputs to finish once all parts are complete

    def of(self, tensor, output):
        """(view of what is reduced, options of submit()); the view is a copy where the input is scaled here."""
        if self.arrays.is_floating(tensor):
            options = {"op": OP_NAMES[self.op], "prescale": self.prescale, "postscale": self.postscale}
            return self.arrays.view(tensor, reduces=True), options
        if self.op == Average or self.postscale != 1.0:
            self.late.append(output)
        if self.prescale != 1.0:
            tensor = self.arrays.scaled(tensor, self.prescale)
        return self.arrays.view(tensor, reduces=True), {"op": OP_NAMES[Sum if self.op == Average else self.op]}

    def finish(self):
        for output in self.late:
            if self.op == Average:
                self.arrays.floor_divide(output, self.size)
            if self.postscale != 1.0:
                self.arrays.assign(output, self.arrays.scaled(output, self.postscale))


def allgather(arrays, tensors, name=None, process_set=global_process_set, is_group=False):
    """Joins the tensors of all ranks along the first dimension, whose extent may differ between ranks."""
    membership = _job.current().membership(process_set)
    views = [arrays.view(tensor) for tensor in tensors]
    for tensor in tensors:
        if not arrays.shape(tensor):
            raise HorovodInternalError("allgather: a tensor without dimensions cannot be joined along the first one")
    base = membership.name_of("grouped_allgather" if is_group else "allgather", name)
    names = _member_names(base, len(tensors))
    outputs = [None] * len(tensors)

    def allocator(i, tensor):
        def allocate(rows):
            outputs[i] = arrays.empty(tensor, (sum(rows),) + arrays.shape(tensor)[1:])
            return arrays.view(outputs[i])

        return allocate

    parts = [
        submit(
            membership,
            entry,
            view,
            collective="allgather",
            allocate=allocator(i, tensor),
            stream=arrays.stream(tensor),
            **_group_options(names, base),
        )
        for i, (entry, tensor, view) in enumerate(zip(names, tensors, views))
    ]
    return keep(Operation(parts, outputs))


def broadcast(arrays, tensor, output, root_rank, name=None, process_set=global_process_set):
    """Copies the tensor of root_rank, a rank of the job, into every member's output."""
    membership = _job.current().membership(process_set)
    root = root_of(process_set, root_rank)
    target = None if output is tensor else arrays.view(output)
    part = submit(
        membership,
        membership.name_of("broadcast", name),
        arrays.view(tensor),
        target,
        collective="broadcast",
        root=root,
        stream=arrays.stream(tensor),
    )
    return keep(Operation([part], output))


def alltoall(arrays, tensor, splits, name=None, process_set=global_process_set):
    """Sends splits[r] rows of the tensor to rank r (None: equal parts). The result: (output, rows that came from each rank)."""
    membership = _job.current().membership(process_set)
    if not arrays.shape(tensor):
        raise HorovodInternalError("alltoall: a tensor without dimensions cannot be split along the first one")
    if splits is not None:
        splits = arrays.splits(splits)
        sent = int(sum(splits))
        tensor = tensor[:sent] if sent < arrays.shape(tensor)[0] else tensor
    result = [None, None]

    def allocate(rows):
        result[0] = arrays.empty(tensor, (sum(rows),) + arrays.shape(tensor)[1:])
        result[1] = list(rows)
        return arrays.view(result[0])

    part = submit(
        membership,
        membership.name_of("alltoall", name),
        arrays.view(tensor),
        collective="alltoall",
        splits=splits,
        allocate=allocate,
        stream=arrays.stream(tensor),
    )
    return keep(Operation([part], lambda: (result[0], arrays.received_splits(result[1], splits))))


def reducescatter(arrays, tensors, op, prescale=1.0, postscale=1.0, name=None, process_set=global_process_set, is_group=False):
    """Reduces the tensors and gives each rank its rows; the first ranks get one more where the rows do not divide."""
    check_op_of_reducescatter(op)
    membership = _job.current().membership(process_set)
    rank, size = process_set.rank(), process_set.size()
    for tensor in tensors:
        if not arrays.shape(tensor):
            raise HorovodInternalError("reducescatter: a tensor without dimensions cannot be split along the first one")
    base = membership.name_of("grouped_reducescatter" if is_group else "reducescatter", name)
    names = _member_names(base, len(tensors))
    reduction = _Reduction(arrays, op, prescale, postscale, process_set)
    parts, outputs = [], []
    for entry, tensor in zip(names, tensors):
        rows, *others = arrays.shape(tensor)
        output = arrays.empty(tensor, (rows // size + (1 if rank < rows % size else 0), *others))
        view, options = reduction.of(tensor, output)
        options.update(_group_options(names, base), collective="reduce_scatter", stream=arrays.stream(tensor))
        parts.append(submit(membership, entry, view, arrays.view(output, reduces=True), **options))
        outputs.append(output)
    return keep(Operation(parts, outputs, reduction.finish))


def join(zeros=None):
    """This rank has no more tensors: the others' allreduces and barriers go on without it. Returns the rank that joined last.

    zeros: a function that returns so many bytes of zeros on this rank's GPU, for allreduces of GPUs' tensors.
    """
    membership = _job.current().membership(global_process_set)
    try:
        work = membership.queue.join(zeros)
        work.wait()
        membership.count_anew()
        return work.source
    except tutti.Error as error:
        raise HorovodInternalError(str(error)) from error


def barrier(process_set=global_process_set):
    """Returns once all members have called it."""
    membership = _job.current().membership(process_set)
    work = submit(membership, membership.name_of("barrier", None), None, collective="barrier", will_wait=True)
    synchronize(keep(Operation([work], None)))
