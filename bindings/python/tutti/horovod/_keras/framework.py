"""One Keras module: its backend, and the values of its variables as numpy arrays."""

import numpy

import tutti.horovod as hvd

from .._operations import synchronize
from ..process_sets import global_process_set

BACKENDS = ("tensorflow", "jax", "torch")


class Framework:
    """keras: the module `keras` or `tensorflow.keras`. Errors: ImportError for a backend without gradients."""

    def __init__(self, keras):
        self.keras = keras
        self.is_keras3 = hasattr(keras, "ops")
        self.backend = keras.backend.backend() if self.is_keras3 else "tensorflow"
        if self.backend not in BACKENDS:
            raise ImportError(f"tutti.horovod: Keras trains with KERAS_BACKEND={self.backend}; set it to one of {', '.join(BACKENDS)}")

    @property
    def executes_eagerly(self):
        """False in a graph of tf.compat.v1, whose variables a session has."""
        if self.is_keras3:
            return True
        import tensorflow as tf  # pylint: disable=import-outside-toplevel  # other backends lack it

        return tf.executing_eagerly()

    def array(self, value):
        """The value of a tensor, a variable, a number or a list."""
        if self.is_keras3:
            return self.keras.ops.convert_to_numpy(value)
        if not self.executes_eagerly:
            return numpy.asarray(self.keras.backend.get_value(value) if hasattr(value, "graph") else value)
        return value.numpy() if hasattr(value, "numpy") else numpy.asarray(value)

    def tensor(self, array):
        """A tensor of the backend; in a graph of tf.compat.v1 the array itself."""
        if self.is_keras3:
            return self.keras.ops.convert_to_tensor(array)
        return self.keras.backend.constant(array, dtype=array.dtype) if self.executes_eagerly else array

    def assign(self, variable, array):
        if self.executes_eagerly:
            variable.assign(array)
        else:
            self.keras.backend.set_value(variable, array)

    def input(self, value):
        """A caller's argument as an array with the dtype that Keras would give it."""
        is_plain = isinstance(value, (list, tuple, int, float))
        return self.array(self.tensor(numpy.asarray(value, numpy.float32 if _has_floats(value) else None)) if is_plain else value)

    def variables_of(self, optimizer):
        """An optimizer's variables; older versions have a method for them."""
        if optimizer is None:
            return []
        return list(optimizer.variables() if callable(optimizer.variables) else optimizer.variables)

    def state_of(self, model, optimizer=None):
        """The variables that ranks share: weights and the optimizer's. Seeds of dropout and metrics stay each rank's own."""
        optimizer = optimizer or getattr(model, "optimizer", None)
        return [*model.weights, *self.variables_of(optimizer)]

    def broadcast(self, variables, root_rank, process_set=global_process_set):
        """Gives variables the values of root_rank's. Errors: ValueError where ranks have different variables."""
        arrays = [numpy.array(self.array(variable), order="C") for variable in variables]
        _check_equal([(array.dtype.name, array.shape) for array in arrays], process_set)
        handles = [hvd.broadcast_async_(array, root_rank, f"variable.{i}", process_set) for i, array in enumerate(arrays)]
        for handle in handles:
            synchronize(handle)
        if hvd.rank() != root_rank:
            for variable, array in zip(variables, arrays):
                self.assign(variable, array)

    def broadcast_global_variables(self, root_rank):
        """In a graph of tf.compat.v1, in Keras's session."""
        import tensorflow as tf  # pylint: disable=import-outside-toplevel  # other backends lack it

        from ..tensorflow import broadcast_global_variables  # pylint: disable=import-outside-toplevel

        tf.compat.v1.keras.backend.get_session().run(broadcast_global_variables(root_rank))

    def synchronize_model(self, model):
        """Within fit(), the JAX backend keeps the state of training apart; this brings it to the variables."""
        if hasattr(model, "jax_state_sync"):
            model.jax_state_sync()


def _has_floats(value):
    return numpy.asarray(value).dtype.kind == "f"


def _check_equal(own, process_set):
    everybody = hvd.allgather_object(own, "variables", process_set)
    for rank, theirs in zip(process_set.ranks, everybody):
        if theirs != everybody[0]:
            raise ValueError(
                f"ranks {process_set.ranks[0]} and {rank} have different variables: {everybody[0]} and {theirs}. Build equal models "
                "and optimizers on all ranks before they are broadcast"
            )
