"""Adds up the gradients of several passes of a graph of tf.compat.v1, and reduces the sums."""

import tensorflow as tf


class Aggregation:
    """Every `passes` passes sums are reduced and applied; between them they are what compute_gradients() gives.

    reduction: a GradientReduction. is_average: sums are divided by their number.
    """

    def __init__(self, name, reduction, passes, is_average):
        self._name = name
        self._reduction = reduction
        self._passes = passes
        self._is_average = is_average
        self._counter = None

    def _variable(self, name, shape, dtype):
        # Ranks have gradients of their own here, and start at the same point.
        return tf.compat.v1.get_variable(
            name,
            shape=shape,
            dtype=dtype,
            trainable=False,
            use_resource=True,
            initializer=tf.compat.v1.zeros_initializer(),
            collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
        )

    def compute_gradients(self, gradients, variables):
        """Adds the gradients to the sums. Returns the reduced sums in every last pass, else the sums so far; None stays None."""
        gradients = self._reduction.summable(gradients)
        there = [i for i, gradient in enumerate(gradients) if gradient is not None]
        with tf.compat.v1.variable_scope(f"{self._name}_aggregation", reuse=tf.compat.v1.AUTO_REUSE):
            self._counter = self._variable("counter", [], tf.int32)
            sums = [self._variable(f"sum_{i}", gradients[i].shape, gradients[i].dtype) for i in there]
        added = [total.assign_add(gradients[i], read_value=False) for total, i in zip(sums, there)]
        with tf.control_dependencies([*added, self._counter.assign_add(1, read_value=False)]):
            results = tf.cond(
                tf.equal(self._counter.read_value(), self._passes),
                lambda: self._reduced(sums, [variables[i] for i in there]),
                lambda: [total.read_value() for total in sums],
            )
        by_place = dict(zip(there, results if isinstance(results, (list, tuple)) else [results]))
        return [by_place.get(i) for i in range(len(gradients))]

    def _reduced(self, sums, variables):
        values = [total.read_value() for total in sums]
        if self._is_average:
            values = [value / self._passes for value in values]
        reduced = self._reduction(values, variables)
        with tf.control_dependencies(reduced):
            cleared = [total.assign(tf.zeros_like(total), read_value=False) for total in [*sums, self._counter]]
        with tf.control_dependencies(cleared):
            return [tf.identity(value) for value in reduced]

    def apply_gradients(self, apply, grads_and_vars, global_step):
        """apply() in every last pass. The global step counts all passes."""
        with tf.control_dependencies([gradient for gradient, _ in grads_and_vars if gradient is not None]):
            is_last = tf.equal(self._counter.read_value(), 0)

        def count_step():
            return tf.no_op() if global_step is None else tf.group(global_step.assign_add(1, read_value=False))

        return tf.cond(is_last, lambda: tf.group(apply()), count_step)
