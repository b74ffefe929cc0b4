"""Optimizers of tf.compat.v1 whose gradients are those of all members of a process set."""

import tensorflow as tf

from .._basics import Adasum, Average
from .._gradients import checked_groups
from ..process_sets import global_process_set
from .aggregation import GraphAggregation
from .compression import Compression
from .gradients import GradientReduction


class _DistributedOptimizer(tf.compat.v1.train.Optimizer):
    """Wraps an optimizer: compute_gradients() gives reduced gradients. All else is the wrapped one's."""

    def __init__(self, optimizer, name, use_locking, reduction, aggregation):
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer
        self._reduction = reduction
        self._aggregation = aggregation

    def register_local_var(self, var):
        """A variable whose gradient is not reduced."""
        self._reduction.register_local(var)

    def compute_gradients(self, *args, **kwargs):
        gradients, variables = zip(*self._optimizer.compute_gradients(*args, **kwargs))
        if self._aggregation is None:
            return list(zip(self._reduction(gradients, variables), variables))
        return list(zip(self._aggregation.compute_gradients(gradients, variables), variables))

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        if self._aggregation is None:
            return self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)
        return self._aggregation.apply_gradients(
            lambda: self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name), grads_and_vars, global_step
        )

    def get_slot(self, *args, **kwargs):
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args, **kwargs):
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args, **kwargs):
        return self._optimizer.variables(*args, **kwargs)


def DistributedOptimizer(
    optimizer,
    name=None,
    use_locking=False,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    backward_passes_per_step=1,
    op=Average,
    gradient_predivide_factor=1.0,
    average_aggregated_gradients=False,
    num_groups=0,
    groups=None,
    process_set=global_process_set,
    scale_local_gradients=True,
):
    """An optimizer of tf.compat.v1.train, or of Keras, that reduces gradients before it applies them.

    backward_passes_per_step: gradients of so many passes are added up, in a graph, before they are reduced and applied;
    average_aggregated_gradients: and divided by their number. The others: as DistributedGradientTape(). An optimizer of Keras becomes
    that of tutti.horovod.tensorflow.keras.
    """
    groups = checked_groups(op, gradient_predivide_factor, num_groups, groups)
    reduced_by = {
        "device_dense": device_dense,
        "device_sparse": device_sparse,
        "compression": compression,
        "sparse_as_dense": sparse_as_dense,
        "op": op,
        "gradient_predivide_factor": gradient_predivide_factor,
        "groups": groups,
        "process_set": process_set,
        "scale_local_gradients": scale_local_gradients,
    }
    if not isinstance(optimizer, tf.compat.v1.train.Optimizer):
        if op == Adasum:
            raise ValueError("op == Adasum is not supported yet with Keras")
        from . import keras  # takes seconds

        return keras.DistributedOptimizer(
            optimizer,
            name=name,
            backward_passes_per_step=backward_passes_per_step,
            average_aggregated_gradients=average_aggregated_gradients,
            **reduced_by,
        )
    if op == Adasum:
        raise NotImplementedError("op=Adasum is not there for TensorFlow's optimizers; use Average")
    name = name or f"Distributed{type(optimizer).__name__}"
    reduction = GradientReduction(name, **reduced_by)
    aggregation = None
    if backward_passes_per_step > 1:
        if tf.executing_eagerly():
            raise ValueError("backward_passes_per_step > 1 is not yet supported for _LegacyOptimizer with eager execution.")
        aggregation = GraphAggregation(name, reduction, backward_passes_per_step, average_aggregated_gradients)
    return _DistributedOptimizer(optimizer, name, use_locking, reduction, aggregation)
