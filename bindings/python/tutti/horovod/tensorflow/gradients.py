"""Gradients of a training step, reduced over the members of a process set: what tapes and optimizers share."""

import warnings

import tensorflow as tf

from .._basics import Average
from ..process_sets import global_process_set
from ..util import split_list
from .compression import Compression
from .reductions import allreduce, grouped_allreduce


def checked_groups(op, gradient_predivide_factor, num_groups, groups):
    """The groups that a tape or an optimizer asks for; num_groups is their old form. Errors: ValueError."""
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed in v0.23.0.", DeprecationWarning, stacklevel=3
        )
        groups = num_groups if groups is None else groups
    if groups is not None and not (isinstance(groups, (list, tuple)) or groups > 0):
        raise ValueError("groups should be a non-negative integer or a list of list of tf.Variable.")
    return groups


class GradientReduction:
    """How gradients are reduced. Called with gradients and their variables, it returns the reduced ones; None stays None.

    Variables that are local keep their own gradients, divided by the number of members where scale_local_gradients says so: the others
    are averages, too.
    """

    def __init__(
        self,
        name,
        device_dense="",
        device_sparse="",
        compression=Compression.none,
        sparse_as_dense=False,
        op=Average,
        gradient_predivide_factor=1.0,
        groups=None,
        process_set=global_process_set,
        scale_local_gradients=True,
    ):
        self.name = name
        self.sparse_as_dense = sparse_as_dense
        self.groups = groups
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self.local = set()  # keys of variables
        prescale, postscale = (1.0 / gradient_predivide_factor, gradient_predivide_factor) if op == Average else (1.0, 1.0)
        self._options = {
            "device_dense": device_dense,
            "device_sparse": device_sparse,
            "compression": compression,
            "op": op,
            "prescale_factor": prescale,
            "postscale_factor": postscale,
            "process_set": process_set,
        }

    def register_local(self, variable):
        self.local.add(key_of(variable))

    def is_local(self, variable):
        return key_of(variable) in self.local

    def __call__(self, gradients, variables=None, use_generic_names=False):
        results = list(gradients)
        local = [i for i in range(len(results)) if variables is not None and self.is_local(variables[i])]
        shared = [i for i, gradient in enumerate(results) if gradient is not None and i not in local]
        if self.sparse_as_dense:
            for i in shared:
                results[i] = tf.convert_to_tensor(results[i])
        if self.scale_local_gradients:
            for i in local:
                results[i] = _divided(results[i], self.process_set.size())
        if shared and self.process_set.included() and self.process_set.size() > 1:
            with tf.name_scope(self.name + "_Allreduce"):
                reduced = self._reduce([results[i] for i in shared], self._split(shared, variables), shared, use_generic_names)
            for i, gradient in zip(shared, reduced):
                results[i] = gradient
        return results

    def _reduce(self, gradients, groups, numbers, use_generic_names):
        """gradients[i] has the number numbers[i]. groups: lists of places in gradients; None: each by itself."""
        if groups is None and tf.executing_eagerly():
            # All of them are there: one operation is quicker, and they share the negotiation.
            groups = [list(range(len(gradients)))]
        results = [None] * len(gradients)
        if groups is None:
            for place, gradient in enumerate(gradients):
                results[place] = allreduce(gradient, **self._names(numbers[place], use_generic_names), **self._options)
            return results
        for number, group in enumerate(groups):
            reduced = grouped_allreduce([gradients[place] for place in group], **self._names(number, use_generic_names), **self._options)
            for place, gradient in zip(group, reduced):
                results[place] = gradient
        return results

    def _names(self, number, use_generic_names):
        return {"name": f"grad_{number}", "ignore_name_scope": True} if use_generic_names else {}

    def _split(self, numbers, variables):
        """The groups, as lists of places in the list of gradients."""
        if self.groups is None:
            return None
        places = list(range(len(numbers)))
        if not isinstance(self.groups, (list, tuple)):
            return [part for part in split_list(places, self.groups) if part]
        place_of = {key_of(variables[number]): place for place, number in enumerate(numbers)}
        groups = []
        for group in self.groups:
            found = [place_of.pop(key) for key in map(key_of, group) if key in place_of]
            if found:
                groups.append(found)
        return groups + [[place] for place in place_of.values()]


def key_of(variable):
    """Variables of Keras 3 and of TensorFlow compare by value; this tells whether two are the same."""
    return id(getattr(variable, "value", variable) if not hasattr(variable, "handle") and hasattr(variable, "path") else variable)


def _divided(gradient, size):
    if gradient is None:
        return None
    if isinstance(gradient, tf.IndexedSlices):
        return tf.IndexedSlices(gradient.values / tf.cast(size, gradient.values.dtype), gradient.indices, gradient.dense_shape)
    return gradient / tf.cast(size, gradient.dtype)
