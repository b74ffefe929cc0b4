"""Horovod's collectives for one framework. Each front end makes one object; its methods are the functions of the module."""

from . import _operations
from ._basics import Average
from ._operations import op_of, synchronize
from .compression import NoneCompressor, compressed
from .process_sets import global_process_set

FUNCTIONS = (
    "allreduce allreduce_ allreduce_async allreduce_async_ grouped_allreduce grouped_allreduce_ grouped_allreduce_async "
    "grouped_allreduce_async_ allgather allgather_async grouped_allgather grouped_allgather_async broadcast broadcast_ broadcast_async "
    "broadcast_async_ alltoall alltoall_async reducescatter reducescatter_async grouped_reducescatter grouped_reducescatter_async"
).split()


class FrontEnd:
    """arrays: the framework's _operations.Arrays.

    Methods that begin with an underscore take and return lists, and may be replaced by differentiable ones.
    """

    def __init__(self, arrays):
        self.arrays = arrays

    def functions(self):
        """{name: function} of those in FUNCTIONS."""
        return {name: getattr(self, name) for name in FUNCTIONS}

    def _empty_like(self, tensors):
        return [self.arrays.empty(tensor, self.arrays.shape(tensor)) for tensor in tensors]

    def _inputs(self, tensors):
        return [self.arrays.input(tensor) for tensor in tensors]

    def _allreduce(self, tensors, *arguments):
        return synchronize(_operations.allreduce(self.arrays, tensors, self._empty_like(tensors), *arguments))

    def _allgather(self, tensors, *arguments):
        return synchronize(_operations.allgather(self.arrays, tensors, *arguments))

    def _reducescatter(self, tensors, *arguments):
        return synchronize(_operations.reducescatter(self.arrays, tensors, *arguments))

    def _broadcast(self, tensor, root_rank, name, process_set):
        return synchronize(self.broadcast_async(tensor, root_rank, name, process_set))

    def _alltoall(self, tensor, splits, name, process_set):
        return synchronize(self.alltoall_async(tensor, splits, name, process_set))

    def _compressed(self, function, tensors, compression, *arguments):
        return compressed(lambda narrow: function(narrow, *arguments), self._inputs(tensors), compression)

    def allreduce_async(
        self,
        tensor,
        average=None,
        name=None,
        op=None,
        prescale_factor=1.0,
        postscale_factor=1.0,
        process_set=global_process_set,
        priority=0,
    ):
        """As allreduce(); returns a handle."""
        tensors = self._inputs([tensor])
        outputs = self._empty_like(tensors)
        return _operations.first(
            _operations.allreduce(
                self.arrays, tensors, outputs, op_of(op, average), prescale_factor, postscale_factor, name, process_set, False, priority
            )
        )

    def allreduce(
        self,
        tensor,
        average=None,
        name=None,
        compression=NoneCompressor,
        op=None,
        prescale_factor=1.0,
        postscale_factor=1.0,
        process_set=global_process_set,
    ):
        """The reduction of a tensor over all members of the process set: a new tensor.

        op: Average (default), Sum, Adasum, Min, Max or Product. prescale_factor: of each input; postscale_factor: of the result.
        """
        return self._compressed(
            self._allreduce, [tensor], compression, op_of(op, average), prescale_factor, postscale_factor, name, process_set, False
        )[0]

    def allreduce_async_(
        self,
        tensor,
        average=None,
        name=None,
        op=None,
        prescale_factor=1.0,
        postscale_factor=1.0,
        process_set=global_process_set,
        priority=0,
    ):
        """As allreduce_(); returns a handle. priority: the greatest first, with TUTTI_PRIORITY=direct."""
        return _operations.first(
            _operations.allreduce(
                self.arrays, [tensor], [tensor], op_of(op, average), prescale_factor, postscale_factor, name, process_set, False, priority
            )
        )

    def allreduce_(
        self, tensor, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set
    ):
        """As allreduce(), in place."""
        return synchronize(self.allreduce_async_(tensor, average, name, op, prescale_factor, postscale_factor, process_set))

    def grouped_allreduce_async(
        self, tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set
    ):
        """As grouped_allreduce(); returns one handle."""
        tensors = self._inputs(tensors)
        outputs = self._empty_like(tensors)
        return _operations.allreduce(
            self.arrays, tensors, outputs, op_of(op, average), prescale_factor, postscale_factor, name, process_set, True
        )

    def grouped_allreduce(
        self,
        tensors,
        average=None,
        name=None,
        compression=NoneCompressor,
        op=None,
        prescale_factor=1.0,
        postscale_factor=1.0,
        process_set=global_process_set,
    ):
        """As allreduce() of each tensor, communicated together or not at all. Returns a list."""
        return self._compressed(
            self._allreduce, tensors, compression, op_of(op, average), prescale_factor, postscale_factor, name, process_set, True
        )

    def grouped_allreduce_async_(
        self, tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set
    ):
        """As grouped_allreduce_(); returns one handle."""
        tensors = list(tensors)
        return _operations.allreduce(
            self.arrays, tensors, tensors, op_of(op, average), prescale_factor, postscale_factor, name, process_set, True
        )

    def grouped_allreduce_(
        self, tensors, average=None, name=None, op=None, prescale_factor=1.0, postscale_factor=1.0, process_set=global_process_set
    ):
        """As grouped_allreduce(), in place."""
        return synchronize(self.grouped_allreduce_async_(tensors, average, name, op, prescale_factor, postscale_factor, process_set))

    def allgather_async(self, tensor, name=None, process_set=global_process_set):
        """As allgather(); returns a handle."""
        return _operations.first(_operations.allgather(self.arrays, self._inputs([tensor]), name, process_set, False))

    def allgather(self, tensor, name=None, process_set=global_process_set):
        """The tensors of all members, joined along the first dimension. Its extent may differ between ranks."""
        return self._allgather(self._inputs([tensor]), name, process_set, False)[0]

    def grouped_allgather_async(self, tensors, name=None, process_set=global_process_set):
        """As grouped_allgather(); returns one handle."""
        return _operations.allgather(self.arrays, self._inputs(tensors), name, process_set, True)

    def grouped_allgather(self, tensors, name=None, process_set=global_process_set):
        """As allgather() of each tensor, communicated together or not at all. Returns a list."""
        return self._allgather(self._inputs(tensors), name, process_set, True)

    def broadcast_async(self, tensor, root_rank, name=None, process_set=global_process_set):
        """As broadcast(); returns a handle."""
        [tensor] = self._inputs([tensor])
        return _operations.broadcast(self.arrays, tensor, self._empty_like([tensor])[0], root_rank, name, process_set)

    def broadcast(self, tensor, root_rank, name=None, process_set=global_process_set):
        """The tensor of root_rank, a rank of the job, on all members: a new tensor."""
        return self._broadcast(self.arrays.input(tensor), root_rank, name, process_set)

    def broadcast_async_(self, tensor, root_rank, name=None, process_set=global_process_set):
        """As broadcast_(); returns a handle."""
        return _operations.broadcast(self.arrays, tensor, tensor, root_rank, name, process_set)

    def broadcast_(self, tensor, root_rank, name=None, process_set=global_process_set):
        """As broadcast(), in place."""
        return synchronize(self.broadcast_async_(tensor, root_rank, name, process_set))

    def alltoall_async(self, tensor, splits=None, name=None, process_set=global_process_set):
        """As alltoall(); synchronize() gives (output, received splits)."""
        return _operations.alltoall(self.arrays, self.arrays.input(tensor), splits, name, process_set)

    def alltoall(self, tensor, splits=None, name=None, process_set=global_process_set):
        """Sends splits[r] rows of the tensor to member r (None: equal parts).

        Returns the rows received and, where splits are given, how many came from each member.
        """
        output, received_splits = self._alltoall(self.arrays.input(tensor), splits, name, process_set)
        return output if splits is None else (output, received_splits)

    def reducescatter_async(self, tensor, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0):
        """As reducescatter(); returns a handle."""
        return _operations.first(
            _operations.reducescatter(self.arrays, self._inputs([tensor]), op, prescale_factor, postscale_factor, name, process_set, False)
        )

    def reducescatter(
        self,
        tensor,
        name=None,
        compression=NoneCompressor,
        op=Average,
        process_set=global_process_set,
        prescale_factor=1.0,
        postscale_factor=1.0,
    ):
        """This member's rows of the reduction; the first members get one row more where the rows do not divide. op: Average or Sum."""
        return self._compressed(
            self._reducescatter, [tensor], compression, op, prescale_factor, postscale_factor, name, process_set, False
        )[0]

    def grouped_reducescatter_async(
        self, tensors, name=None, op=Average, process_set=global_process_set, prescale_factor=1.0, postscale_factor=1.0
    ):
        """As grouped_reducescatter(); returns one handle."""
        return _operations.reducescatter(self.arrays, self._inputs(tensors), op, prescale_factor, postscale_factor, name, process_set, True)

    def grouped_reducescatter(
        self,
        tensors,
        name=None,
        compression=NoneCompressor,
        op=Average,
        process_set=global_process_set,
        prescale_factor=1.0,
        postscale_factor=1.0,
    ):
        """As reducescatter() of each tensor, communicated together or not at all. Returns a list."""
        return self._compressed(self._reducescatter, tensors, compression, op, prescale_factor, postscale_factor, name, process_set, True)
