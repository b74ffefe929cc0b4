"""Optimizers of tf.compat.v1 whose gradients are those of all members of a process set."""

import tensorflow as tf

from .._adasum import check as check_adasum
from .._basics import Adasum, Average
from .._gradients import checked_groups
from ..process_sets import global_process_set
from .aggregation import GraphAggregation, make_local_variable
from .compression import Compression
from .gradients import GradientReduction
from .reductions import grouped_allreduce


class _Wrapper(tf.compat.v1.train.Optimizer):
    """An optimizer that calls another one."""

    def __init__(self, optimizer, name, use_locking):
        super().__init__(name=name, use_locking=use_locking)
        self._optimizer = optimizer

    def compute_gradients(self, *args, **kwargs):
        return self._optimizer.compute_gradients(*args, **kwargs)

    def get_slot(self, *args, **kwargs):
        return self._optimizer.get_slot(*args, **kwargs)

    def get_slot_names(self, *args, **kwargs):
        return self._optimizer.get_slot_names(*args, **kwargs)

    def variables(self, *args, **kwargs):
        return self._optimizer.variables(*args, **kwargs)


class _DistributedOptimizer(_Wrapper):
    """Its compute_gradients() gives reduced gradients."""

    def __init__(self, optimizer, name, use_locking, reduction, aggregation):
        super().__init__(optimizer, name, use_locking)
        self._reduction = reduction
        self._aggregation = aggregation

    def register_local_var(self, var):
        """A variable whose gradient is not reduced."""
        self._reduction.register_local(var)

    def compute_gradients(self, *args, **kwargs):
        gradients, variables = zip(*super().compute_gradients(*args, **kwargs))
        if self._aggregation is None:
            return list(zip(self._reduction(gradients, variables), variables))
        return list(zip(self._aggregation.compute_gradients(gradients, variables), variables))

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        if self._aggregation is None:
            return self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name)
        return self._aggregation.apply_gradients(
            lambda: self._optimizer.apply_gradients(grads_and_vars, global_step=global_step, name=name), grads_and_vars, global_step
        )


class _DistributedAdasumOptimizer(_Wrapper):
    """Each rank applies its own gradients; the changes of the variables are combined. Momentum and learning rate are in them.

    passes: that many steps of each rank make one change.
    """

    def __init__(self, optimizer, name, use_locking, compression, passes):
        super().__init__(optimizer, name, use_locking)
        self._compression = compression
        self._passes = passes

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        pairs = list(grads_and_vars)
        variables = [variable for gradient, variable in pairs if gradient is not None]
        if tf.executing_eagerly():
            starts = [tf.identity(variable) for variable in variables]
            self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
            return _assign(variables, self._combined(variables, starts))
        starts, counter = self._make_starts(variables)
        # A variable of references changes in place.
        values = [tf.raw_ops.DeepCopy(x=variable) for variable in variables]
        begin = tf.cond(tf.equal(counter, 0), lambda: _assign(starts, values), tf.no_op)
        with tf.control_dependencies([begin]):
            applied = self._optimizer.apply_gradients(pairs, global_step=global_step, name=name)
        with tf.control_dependencies([applied]):
            counted = counter.assign(tf.math.floormod(counter + 1, self._passes), read_value=False)
            values = [variable.read_value() for variable in variables]
        with tf.control_dependencies([counted]):
            is_last = tf.equal(counter.read_value(), 0)
        results = tf.cond(is_last, lambda: self._combined(values, starts), lambda: [tf.identity(value) for value in values])
        return _assign(variables, results if isinstance(results, (list, tuple)) else [results])

    def _make_starts(self, variables):
        """Variables for the values before the first step, and the counter of steps."""
        with tf.compat.v1.variable_scope(f"{self._name}_start", reuse=tf.compat.v1.AUTO_REUSE):
            counter = make_local_variable("counter", [], tf.int32)
            dtypes = [variable.dtype.base_dtype for variable in variables]
            starts = [make_local_variable(f"start_{i}", v.shape, dtype) for i, (v, dtype) in enumerate(zip(variables, dtypes))]
        return starts, counter

    def _combined(self, values, starts):
        with tf.name_scope(f"{self._name}_Allreduce"):
            starts = [tf.convert_to_tensor(start) for start in starts]
            changes = [value - start for value, start in zip(values, starts)]
            combined = grouped_allreduce(changes, compression=self._compression, op=Adasum)
            return [start + change for start, change in zip(starts, combined)]


def _assign(variables, values):
    return tf.group(*[variable.assign(value) for variable, value in zip(variables, values)])


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
    average_aggregated_gradients: and divided by their number. op=Adasum combines what a step of each rank changes, in place of gradients;
    backward_passes_per_step is then how many steps. The others: as DistributedGradientTape(). An optimizer of Keras becomes that of
    tutti.horovod.tensorflow.keras.
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
    if backward_passes_per_step > 1 and tf.executing_eagerly():
        raise ValueError("backward_passes_per_step > 1 is not yet supported for _LegacyOptimizer with eager execution.")
    name = name or f"Distributed{type(optimizer).__name__}"
    if op == Adasum:
        check_adasum(process_set)
        return _DistributedAdasumOptimizer(optimizer, name, use_locking, compression, backward_passes_per_step)
    reduction = GradientReduction(name, **reduced_by)
    aggregation = None
    if backward_passes_per_step > 1:
        aggregation = GraphAggregation(name, reduction, backward_passes_per_step, average_aggregated_gradients)
    return _DistributedOptimizer(optimizer, name, use_locking, reduction, aggregation)
