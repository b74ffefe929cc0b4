"""Gradients of a training step, reduced over the members of a process set, on the backends torch and jax."""

import numpy

import tutti.horovod as _arrays

from .._basics import Average
from .._operations import synchronize
from ..util import split_list


class Reduction:
    """Called with gradients and their variables, it returns the reduced gradients; None stays None.

    Variables that are local keep their own gradients, divided by the number of members where scale_local_gradients says so.
    """

    def __init__(self, name, compression, op, gradient_predivide_factor, groups, process_set, scale_local_gradients, reduce):
        self.name = name
        self.compression = compression
        self.groups = groups
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        prescale, postscale = (1.0 / gradient_predivide_factor, gradient_predivide_factor) if op == Average else (1.0, 1.0)
        self.options = {"op": op, "prescale_factor": prescale, "postscale_factor": postscale, "process_set": process_set}
        self._reduce = reduce
        self._local = set()

    def register_local(self, variable):
        self._local.add(id(variable))

    def __call__(self, gradients, variables):
        results = list(gradients)
        size = self.process_set.size()
        if not self.process_set.included() or size == 1:
            return results
        local = [i for i, variable in enumerate(variables) if id(variable) in self._local]
        shared = [i for i, gradient in enumerate(results) if gradient is not None and i not in local]
        if self.scale_local_gradients:
            for i in local:
                results[i] = None if results[i] is None else results[i] / size
        if shared:
            reduced = self._reduce(self, [results[i] for i in shared], self._names(shared, variables))
            for i, gradient in zip(shared, reduced):
                results[i] = gradient
        return results

    def _names(self, numbers, variables):
        """[(name, places in the list of gradients)] of what is submitted together. Names follow from the variables' places."""
        each = [(f"{self.name}.gradient.{number}", [place]) for place, number in enumerate(numbers)]
        if self.groups is None:
            return each
        if not isinstance(self.groups, (list, tuple)):
            parts = split_list(list(range(len(numbers))), self.groups)
        else:
            place_of = {id(variables[number]): place for place, number in enumerate(numbers)}
            parts = [[place_of[id(variable)] for variable in group if id(variable) in place_of] for group in self.groups]
        grouped = {place for part in parts for place in part}
        return [(f"{self.name}.group.{i}", part) for i, part in enumerate(parts) if part] + [
            entry for entry in each if entry[1][0] not in grouped
        ]


def submit_all(front_end, reduction, tensors, names):
    """Reduces tensors by a front end: all are submitted before the first is waited for, so that small ones are fused."""
    narrow, contexts = zip(*[reduction.compression.compress(tensor) for tensor in tensors])
    handles = [
        front_end.grouped_allreduce_async([narrow[place] for place in places], name=name, **reduction.options) for name, places in names
    ]
    results = [None] * len(narrow)
    for handle, (_, places) in zip(handles, names):
        for place, result in zip(places, synchronize(handle)):
            results[place] = reduction.compression.decompress(result, contexts[place])
    return results


def reduce_in_torch(reduction, gradients, names):
    from .. import torch as front_end  # pylint: disable=import-outside-toplevel  # other backends lack it

    return submit_all(front_end, reduction, [gradient.contiguous() for gradient in gradients], names)


def reduce_in_jax(reduction, gradients, names):
    """Within jit, one callback of the host reduces all gradients. Callbacks are ordered, as programs of one rank are."""
    import jax  # pylint: disable=import-outside-toplevel  # other backends lack it
    from jax.experimental import io_callback  # pylint: disable=import-outside-toplevel

    def on_host(arrays):
        return submit_all(_arrays, reduction, [numpy.asarray(array) for array in arrays], names)

    shapes = [jax.ShapeDtypeStruct(gradient.shape, gradient.dtype) for gradient in gradients]
    return io_callback(on_host, shapes, gradients, ordered=True)
