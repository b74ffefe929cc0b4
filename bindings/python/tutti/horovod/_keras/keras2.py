"""Optimizers of Keras 2: TensorFlow's before 2.16, and tf_keras. They reduce gradients where they compute them, as Horovod's do."""

import tensorflow as tf

from ..tensorflow.aggregation import Aggregation
from .optimizers import Distributed


class OfKeras2(Distributed):
    """Current and legacy optimizers: minimize() calls compute_gradients() or _compute_gradients()."""

    _HAS_AGGREGATE_GRAD = True  # older versions ask before they call apply_gradients()
    _agg_helper = None

    @classmethod
    def from_config(cls, config, *args, **options):
        result = super().from_config(config, *args, **options)
        if cls._passes.count > 1:
            result._agg_helper = KerasAggregation(cls._reduction, cls._passes.count, not cls._passes.is_summed)
        return result

    def compute_gradients(self, loss, var_list, tape=None):
        return self._compute_gradients(loss, var_list, None, tape)

    def _compute_gradients(self, loss, var_list, grad_loss=None, tape=None):
        if tape is None and callable(loss):
            tape = tf.GradientTape()
        above = super()
        if hasattr(above, "_compute_gradients"):
            pairs = above._compute_gradients(loss, var_list, grad_loss, tape=tape)
        else:
            pairs = above.compute_gradients(loss, var_list, tape=tape)
        gradients, variables = zip(*pairs)
        return list(zip(self._allreduce(gradients, variables), variables))

    def get_gradients(self, loss, params):
        return self._allreduce(super().get_gradients(loss, params), params)

    def _allreduce(self, gradients, variables):
        if self._agg_helper is None:
            return self._reduction(gradients, variables)
        return self._agg_helper.compute_gradients(list(gradients), list(variables))

    def apply_gradients(self, grads_and_vars, *args, **options):
        pairs = list(grads_and_vars)
        above = super()
        if self._agg_helper is None:
            return above.apply_gradients(pairs, *args, **options)
        return self._agg_helper.apply_gradients(lambda: above.apply_gradients(pairs, *args, **options), self, pairs)


class KerasAggregation(Aggregation):
    """In eager mode and in functions."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.counter = tf.Variable(0, dtype=tf.int32, trainable=False, name="aggregation_counter")
        self._sums = {}  # by place

    def _make_sums(self, gradients, variables):
        given = [i for i, gradient in enumerate(gradients) if gradient is not None]
        with tf.init_scope():  # a function makes no variables after its first call
            for i in given:
                if i not in self._sums:
                    self._sums[i] = tf.Variable(tf.zeros(variables[i].shape, variables[i].dtype), trainable=False)
        return {i: self._sums[i] for i in given}

    def apply_gradients(self, apply, optimizer, pairs):
        """apply() at the last pass; the optimizer's iterations count all passes."""

        def step():
            apply()
            return tf.identity(optimizer.iterations)

        def count():
            optimizer.iterations.assign_add(1)
            return tf.identity(optimizer.iterations)

        with tf.init_scope():
            self._build(optimizer, [variable for _, variable in pairs])
        return tf.cond(tf.equal(self.counter, 0), step, count)

    def _build(self, optimizer, variables):
        """Makes the optimizer's variables outside of the condition."""
        if hasattr(optimizer, "_create_all_weights"):
            optimizer._create_all_weights(variables)
        else:
            optimizer.build(variables)
