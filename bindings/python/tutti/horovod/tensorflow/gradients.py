"""How TensorFlow's gradients are reduced, also those of embeddings, which are tf.IndexedSlices."""

import tensorflow as tf

from .._gradients import Reduction
from .compression import Compression
from .reductions import allreduce, grouped_allreduce


class GradientReduction(Reduction):
    """See Reduction. An optimizer that adds up gradients takes them by summable()."""

    def __init__(self, name, device_dense="", device_sparse="", compression=Compression.none, sparse_as_dense=False, **options):
        super().__init__(name, **options)
        self.options.update(device_dense=device_dense, device_sparse=device_sparse, compression=compression)
        self._sparse_as_dense = sparse_as_dense

    def key_of(self, variable):
        """A variable of Keras 3 has the key of TensorFlow's variable in it."""
        return id(getattr(variable, "value", variable) if not hasattr(variable, "handle") and hasattr(variable, "path") else variable)

    def dense(self, gradients):
        if not self._sparse_as_dense:
            return gradients
        return [gradient if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]

    def summable(self, gradients):
        """As dense(). Errors: ValueError where slices are left."""
        gradients = self.dense(gradients)
        if any(isinstance(gradient, tf.IndexedSlices) for gradient in gradients):
            raise ValueError("IndexedSlices are not supported when `backward_passes_per_step` > 1 and `sparse_as_dense` is False.")
        return gradients

    def divided(self, gradient, divisor):
        if isinstance(gradient, tf.IndexedSlices):
            return tf.IndexedSlices(self.divided(gradient.values, divisor), gradient.indices, gradient.dense_shape)
        return gradient / tf.cast(divisor, gradient.dtype)

    def _reduce(self, gradients, numbers, groups, use_generic_names=False):
        if groups is None and tf.executing_eagerly():
            # All of them are there: one operation is quicker, and they share the negotiation.
            groups = [list(range(len(gradients)))]

        def options(number):
            return {"name": f"grad_{number}", "ignore_name_scope": True, **self.options} if use_generic_names else self.options

        with tf.name_scope(self.name + "_Allreduce"):
            if groups is None:
                return [allreduce(gradient, **options(number)) for gradient, number in zip(gradients, numbers)]
            results = [None] * len(gradients)
            for number, group in enumerate(groups):
                reduced = grouped_allreduce([gradients[place] for place in group], **options(number))
                for place, gradient in zip(group, reduced):
                    results[place] = gradient
        return results
