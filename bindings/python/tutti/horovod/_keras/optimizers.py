"""Optimizers of Keras whose gradients are those of all members of a process set."""

from .._basics import Average, Sum
from .._gradients import checked_groups
from ..compression import NoneCompressor
from ..process_sets import global_process_set
from .jax_reduction import JaxReduction
from .reductions import TorchReduction

_DEFAULTS = {
    "name": None,
    "device_dense": "",
    "device_sparse": "",
    "compression": NoneCompressor,
    "sparse_as_dense": False,
    "gradient_predivide_factor": 1.0,
    "op": Average,
    "backward_passes_per_step": 1,
    "average_aggregated_gradients": False,
    "num_groups": 0,
    "groups": None,
    "process_set": global_process_set,
    "scale_local_gradients": True,
}
_OF_REDUCTIONS = ("compression", "op", "groups", "process_set", "gradient_predivide_factor", "scale_local_gradients")


class Passes:
    """Backward passes whose gradients are added up before they are reduced: how many, and whether their sum or their mean is applied."""

    def __init__(self, count, is_summed):
        self.count = count
        self.is_summed = count > 1 and is_summed
        self.variables = []  # of the gradients under way


class Distributed:
    """The methods that a distributed optimizer has before those of its class. Attributes belong to the class, for from_config()."""

    _reduction = None
    _passes = None

    def register_local_var(self, var):
        """A variable whose gradient is not reduced."""
        self._reduction.register_local(var)


class _OfKeras3(Distributed):
    """Keras 3 calls apply() in training steps of all its backends, on the JAX backend with values that are traced."""

    def apply(self, grads, trainable_variables=None):
        grads = list(grads)
        variables = self._trainable_variables if trainable_variables is None else list(trainable_variables)
        if self.gradient_accumulation_steps:
            self._passes.variables = [variable for gradient, variable in zip(grads, variables) if gradient is not None]
        else:
            grads = self._reduction(grads, variables)
        return super().apply(grads, None if trainable_variables is None else variables)

    def stateless_apply(self, optimizer_variables, grads, trainable_variables):
        # A LossScaleOptimizer does not call apply() here.
        if hasattr(self, "inner_optimizer"):
            grads = self._reduction(grads, self._trainable_variables)
        return super().stateless_apply(optimizer_variables, grads, trainable_variables)

    def _clip_gradients(self, grads):
        # With gradients of several passes, Keras calls this with their means, once for each step.
        if self.gradient_accumulation_steps:
            grads = self._reduction(grads, self._passes.variables)
            if self._passes.is_summed:
                grads = [gradient * self.gradient_accumulation_steps for gradient in grads]
        return super()._clip_gradients(grads)


def _methods(optimizer_class):
    if hasattr(optimizer_class, "stateless_apply"):
        return _OfKeras3
    from .keras2 import OfKeras2  # pylint: disable=import-outside-toplevel  # imports TensorFlow

    return OfKeras2


def is_distributed(optimizer):
    return isinstance(optimizer, Distributed)


def _distributed_class(framework, optimizer_class, reduction, passes):
    """A subclass of the same name and module, which is therefore saved as its base and loaded without Horovod."""
    attributes = {
        "_reduction": reduction,
        "_passes": passes,
        "__doc__": optimizer_class.__doc__,
        "__module__": optimizer_class.__module__,
        "__qualname__": optimizer_class.__qualname__,
    }
    result = type(optimizer_class.__name__, (_methods(optimizer_class), optimizer_class), attributes)
    registered = framework.keras.utils.get_registered_name(optimizer_class)
    if ">" in registered:
        # The name of both classes; it goes on to mean the base.
        for entry in (result, optimizer_class):
            framework.keras.utils.register_keras_serializable(*registered.split(">", 1))(entry)
    return result


class Options:
    """The arguments of DistributedOptimizer(), checked. Errors: ValueError."""

    def __init__(self, framework, **options):
        options = {**_DEFAULTS, **options}
        self._framework = framework
        self._options = options
        if options["op"] not in (Average, Sum):
            raise ValueError("op currently only supports Average and Sum")
        options["groups"] = checked_groups(
            options["op"], options["gradient_predivide_factor"], options["num_groups"], options["groups"], stacklevel=5
        )

    def distributed(self, optimizer):
        """A new optimizer with the configuration of the one given; an optimizer's state is not taken over."""
        result_class = self._class_for(optimizer)
        config = optimizer.get_config()
        if self._framework.is_keras3 and self._options["backward_passes_per_step"] > 1:
            config["gradient_accumulation_steps"] = self._options["backward_passes_per_step"]
        return result_class.from_config(config)

    def convert(self, optimizer):
        """Makes an optimizer distributed in place, with its state."""
        if optimizer is not None and not is_distributed(optimizer):
            optimizer.__class__ = self._class_for(optimizer)

    def _class_for(self, optimizer):
        if not hasattr(optimizer, "get_config"):
            raise ValueError(f"DistributedOptimizer: expected an optimizer of Keras, got {type(optimizer).__name__}")
        if is_distributed(optimizer):
            raise ValueError(f"DistributedOptimizer: this {type(optimizer).__name__} is distributed already")
        passes = Passes(self._options["backward_passes_per_step"], not self._options["average_aggregated_gradients"])
        return _distributed_class(self._framework, type(optimizer), self._reduction(type(optimizer)), passes)

    def _reduction(self, optimizer_class):
        """How an optimizer of this class reduces gradients."""
        options = self._options
        arguments = {key: options[key] for key in _OF_REDUCTIONS}
        arguments["name"] = options["name"] or f"Distributed{optimizer_class.__name__}"
        if self._framework.backend != "tensorflow":
            return (TorchReduction if self._framework.backend == "torch" else JaxReduction)(**arguments)
        from ..tensorflow.gradients import GradientReduction  # pylint: disable=import-outside-toplevel  # other backends lack it

        return GradientReduction(**arguments, **{key: options[key] for key in ("device_dense", "device_sparse", "sparse_as_dense")})
