"""tf.GradientTape whose gradients are those of all members of a process set."""

import tensorflow as tf

from .._basics import Average
from .._gradients import checked_groups, variables_of
from ..process_sets import global_process_set
from .compression import Compression
from .gradients import GradientReduction


class _DistributedGradientTape(tf.GradientTape):
    """The methods that a distributed tape has beside those of the class that it was made from."""

    # Set by DistributedGradientTape().
    _reduction = None

    def register_local_source(self, source):
        """A variable whose gradient is not reduced."""
        self._reduction.register_local(source)

    def gradient(self, target, sources, output_gradients=None, use_generic_names=False, **options):
        """As tf.GradientTape.gradient(), reduced. use_generic_names: names follow from positions alone, not from those of tensors."""
        gradients = super().gradient(target, sources, output_gradients, **options)
        flat = tf.nest.flatten(sources)
        reduced = self._reduction(tf.nest.flatten(gradients), flat, use_generic_names=use_generic_names)
        return tf.nest.pack_sequence_as(sources, reduced)

    def get_local_and_global_gradients(self, target, sources, output_gradients=None, use_generic_names=False):
        """([(source, gradient)] of local sources, the same of others)."""
        pairs = list(zip(sources, self.gradient(target, sources, output_gradients, use_generic_names)))
        is_local = self._reduction.is_local
        return [pair for pair in pairs if is_local(pair[0])], [pair for pair in pairs if not is_local(pair[0])]


def DistributedGradientTape(
    gradtape,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    op=Average,
    gradient_predivide_factor=1.0,
    num_groups=0,
    groups=None,
    process_set=global_process_set,
    scale_local_gradients=True,
):
    """A tape like gradtape, which has recorded: its gradient() gives reduced gradients.

    sparse_as_dense: gradients of embeddings are reduced as tensors. gradient_predivide_factor: gradients are divided by it before the
    sum, and multiplied by it afterwards. groups: how many, or lists of variables whose gradients are communicated together.
    """
    groups = checked_groups(op, gradient_predivide_factor, num_groups, groups)
    # A subclass's tape stays one. It shares what was recorded, and may go on recording.
    tape = object.__new__(type(type(gradtape).__name__, (_DistributedGradientTape, type(gradtape)), {}))
    tape.__dict__.update(gradtape.__dict__)
    # A tape that is wrapped in its own `with` block ends its recording by itself.
    tape._recording = False
    tape._reduction = GradientReduction(
        "DistributedGradientTape",
        device_dense,
        device_sparse,
        compression,
        sparse_as_dense,
        op=op,
        gradient_predivide_factor=gradient_predivide_factor,
        groups=groups,
        process_set=process_set,
        scale_local_gradients=scale_local_gradients,
    )
    return tape


def PartialDistributedGradientTape(
    gradtape,
    device_dense="",
    device_sparse="",
    compression=Compression.none,
    sparse_as_dense=False,
    op=Average,
    gradient_predivide_factor=1.0,
    num_groups=0,
    groups=None,
    process_set=global_process_set,
    local_layers=None,
    scale_local_gradients=True,
):
    """As DistributedGradientTape(), but gradients of local_layers, a layer of Keras or a list of them, are not reduced."""
    arguments = dict(locals())
    local = variables_of(arguments.pop("local_layers"), tf.keras.layers.Layer)
    tape = DistributedGradientTape(**arguments)
    for variable in local:
        tape.register_local_source(variable)
    return tape
