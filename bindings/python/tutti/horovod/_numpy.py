"""Arrays of numpy. See _operations.Arrays."""

import numpy

from ._operations import Arrays


class NumpyArrays(Arrays):
    def input(self, tensor):
        return numpy.ascontiguousarray(tensor) if numpy.ndim(tensor) else numpy.asarray(tensor)

    def view(self, tensor, reduces=False):
        if not tensor.flags.c_contiguous:
            raise ValueError("expected an array whose elements lie row after row; see numpy.ascontiguousarray")
        if tensor.dtype != bool:
            return tensor
        if reduces:
            raise ValueError("an array of bool cannot be reduced; use an integer dtype")
        return tensor.view(numpy.uint8)

    def empty(self, like, shape):
        return numpy.empty(shape, like.dtype)

    def is_floating(self, tensor):
        return tensor.dtype.kind not in "iub"

    def scaled(self, tensor, factor):
        return (tensor * numpy.float64(factor)).astype(tensor.dtype)

    def floor_divide(self, tensor, divisor):
        tensor //= divisor

    def assign(self, tensor, value):
        tensor[...] = value

    def splits(self, splits):
        return [int(rows) for rows in splits]

    def received_splits(self, rows, splits):
        return numpy.array(rows, numpy.int32)

    def flat(self, tensor):
        return tensor.reshape(-1)

    def assign_flat(self, tensor, values):
        tensor[...] = values.reshape(tensor.shape)


arrays = NumpyArrays()
