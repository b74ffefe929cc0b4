"""Gradients of a training step, reduced over the members of a process set: what the tapes and optimizers of all frameworks share."""

import numbers
import warnings

from ._basics import Average
from .process_sets import global_process_set
from .util import split_list


def checked_groups(op, gradient_predivide_factor, num_groups, groups, stacklevel=3):
    """The groups that a tape or an optimizer asks for; num_groups is their old form. Errors: ValueError."""
    if gradient_predivide_factor != 1.0 and op != Average:
        raise ValueError("gradient_predivide_factor not supported with op != Average")
    if num_groups != 0:
        warnings.warn(
            "Parameter `num_groups` has been replaced by `groups` and will be removed in v0.23.0.", DeprecationWarning, stacklevel
        )
        groups = num_groups if groups is None else groups
    if not (groups is None or isinstance(groups, (list, tuple)) or (isinstance(groups, numbers.Integral) and groups > 0)):
        raise ValueError("groups should be a positive integer or a list of lists of variables.")
    return groups


def options_of(op, gradient_predivide_factor, process_set):
    """Arguments of an allreduce of gradients: an average is divided before and after the sum."""
    factor = gradient_predivide_factor if op == Average else 1.0
    return {"op": op, "prescale_factor": 1.0 / factor, "postscale_factor": factor, "process_set": process_set}


def variables_of(local_layers, layer_class):
    """What is trained of one layer of Keras or a list of them; None: nothing. Errors: ValueError."""
    layers = [] if local_layers is None else [local_layers] if isinstance(local_layers, layer_class) else list(local_layers)
    if not all(isinstance(layer, layer_class) for layer in layers):
        raise ValueError("All local layers must be of tf.keras.layers.Layer type.")
    return [variable for layer in layers for variable in layer.trainable_weights]


class Reduction:
    """How gradients are reduced. Called with gradients and their variables, it returns the reduced ones; None stays None.

    Variables that are local keep their own gradients, divided by the number of members where scale_local_gradients says so: the others
    are averages, too. A framework's subclass has _reduce(gradients, numbers, groups, **options): gradients[i] is that of variable
    numbers[i], and groups are lists of places in gradients, or None.
    """

    def __init__(
        self, name, op=Average, gradient_predivide_factor=1.0, groups=None, process_set=global_process_set, scale_local_gradients=True
    ):
        self.name = name
        self.groups = groups
        self.process_set = process_set
        self.scale_local_gradients = scale_local_gradients
        self.options = options_of(op, gradient_predivide_factor, process_set)
        self._local = set()  # keys of variables

    def key_of(self, variable):
        """Equal for the same variable alone; variables may compare by value."""
        return id(variable)

    def register_local(self, variable):
        self._local.add(self.key_of(variable))

    def is_local(self, variable):
        return self.key_of(variable) in self._local

    def dense(self, gradients):
        """Gradients in the form in which they are reduced."""
        return gradients

    def divided(self, gradient, divisor):
        return gradient / divisor

    def __call__(self, gradients, variables=None, **options):
        results = list(gradients)
        given = [i for i, gradient in enumerate(results) if gradient is not None]
        local = {i for i in given if variables is not None and self.is_local(variables[i])}
        shared = [i for i in given if i not in local]
        size = self.process_set.size()
        if self.scale_local_gradients and size > 1:
            for i in local:
                results[i] = self.divided(results[i], size)
        reduced = self.dense([results[i] for i in shared])
        if shared and size > 1 and self.process_set.included():
            reduced = self._reduce(reduced, shared, self._split(shared, variables), **options)
        for i, gradient in zip(shared, reduced):
            results[i] = gradient
        return results

    def _split(self, shared, variables):
        """The groups, as lists of places in the list of gradients. None: there are none."""
        if self.groups is None:
            return None
        if not isinstance(self.groups, (list, tuple)):
            return [part for part in split_list(list(range(len(shared))), self.groups) if part]
        place_of = {self.key_of(variables[number]): place for place, number in enumerate(shared)}
        groups = []
        for group in self.groups:
            found = [place_of.pop(key) for key in map(self.key_of, group) if key in place_of]
            if found:
                groups.append(found)
        return groups + [[place] for place in place_of.values()]
