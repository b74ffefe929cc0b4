"""Adds up the gradients of several passes, and reduces the sums."""

import tensorflow as tf


class Aggregation:
    """Every `passes` passes sums are reduced and applied; between them they are what compute_gradients() gives.

    reduction: a GradientReduction. is_average: sums are divided by their number. A subclass makes the variables: a counter of passes since
    the last step, and a sum for each gradient.
    """

    def __init__(self, reduction, passes, is_average):
        self._reduction = reduction
        self._passes = passes
        self._is_average = is_average
        self.counter = None

    def _make_sums(self, gradients, variables):
        """{place: sum} for gradients that are not None. Also makes the counter."""
        raise NotImplementedError

    def compute_gradients(self, gradients, variables):
        """Adds the gradients to the sums. Returns the reduced sums in every last pass, else the sums so far; None stays None."""
        gradients = self._reduction.summable(gradients)
        sums = self._make_sums(gradients, variables)
        added = [total.assign_add(tf.cast(gradients[i], total.dtype), read_value=False) for i, total in sums.items()]
        with tf.control_dependencies([*added, self.counter.assign_add(1, read_value=False)]):
            results = tf.cond(
                tf.equal(self.counter.read_value(), self._passes),
                lambda: self._reduced(sums.values(), [variables[i] for i in sums]),
                lambda: [total.read_value() for total in sums.values()],
            )
        by_place = dict(zip(sums, results if isinstance(results, (list, tuple)) else [results]))
        return [by_place.get(i) for i in range(len(gradients))]

    def _reduced(self, sums, variables):
        values = [total.read_value() for total in sums]
        if self._is_average:
            values = [value / tf.cast(self._passes, value.dtype) for value in values]
        reduced = self._reduction(values, variables)
        with tf.control_dependencies(reduced):
            cleared = [total.assign(tf.zeros_like(total), read_value=False) for total in [*sums, self.counter]]
        with tf.control_dependencies(cleared):
            return [tf.identity(value) for value in reduced]


def make_local_variable(name, shape, dtype):
    """One of tf.compat.v1 with zeros. Local: ranks have values of their own in it, and start at the same point."""
    return tf.compat.v1.get_variable(
        name,
        shape=shape,
        dtype=dtype,
        trainable=False,
        use_resource=True,
        initializer=tf.compat.v1.zeros_initializer(),
        collections=[tf.compat.v1.GraphKeys.LOCAL_VARIABLES],
    )


class GraphAggregation(Aggregation):
    """In a graph of tf.compat.v1."""

    def __init__(self, name, *arguments):
        super().__init__(*arguments)
        self._name = name

    def _make_sums(self, gradients, variables):
        with tf.compat.v1.variable_scope(f"{self._name}_aggregation", reuse=tf.compat.v1.AUTO_REUSE):
            self.counter = make_local_variable("counter", [], tf.int32)
            return {i: make_local_variable(f"sum_{i}", g.shape, g.dtype) for i, g in enumerate(gradients) if g is not None}

    def apply_gradients(self, apply, grads_and_vars, global_step):
        """apply() in every last pass. The global step counts all passes."""
        with tf.control_dependencies([gradient for gradient, _ in grads_and_vars if gradient is not None]):
            is_last = tf.equal(self.counter.read_value(), 0)

        def count_step():
            return tf.no_op() if global_step is None else tf.group(global_step.assign_add(1, read_value=False))

        return tf.cond(is_last, lambda: tf.group(apply()), count_step)
