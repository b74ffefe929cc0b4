"""Makes the functions and classes of tutti.horovod.keras for one Keras module."""

import tutti.horovod as hvd

from .. import elastic as _elastic
from .._basics import Average
from .._gradients import variables_of
from ..compression import NoneCompressor
from ..process_sets import global_process_set
from . import callbacks, elastic
from .framework import Framework
from .optimizers import Options

FUNCTIONS = (
    "DistributedOptimizer PartialDistributedOptimizer load_model broadcast_global_variables broadcast_variables allreduce allgather "
    "broadcast reducescatter"
).split()


def compression_of(framework):
    """The Compression class whose casts fit the backend's gradients."""
    if framework.backend == "tensorflow":
        from ..tensorflow.compression import Compression  # pylint: disable=import-outside-toplevel  # other backends lack it
    elif framework.backend == "torch":
        from ..torch.compression import Compression  # pylint: disable=import-outside-toplevel
    else:
        Compression = hvd.Compression
    return Compression


def _with_base(framework, module, base, mix_ins):
    """{name: class} of mix-ins. They may derive from each other."""
    return {
        mix_in.__name__: type(mix_in.__name__, (mix_in, base), {"framework": framework, "__module__": module, "__doc__": mix_in.__doc__})
        for mix_in in mix_ins
    }


def callbacks_of(framework, module):
    """What the module `callbacks` has."""
    base = framework.keras.callbacks
    ordinary = (
        callbacks.BroadcastGlobalVariablesCallback,
        callbacks.MetricAverageCallback,
        callbacks.LearningRateScheduleCallback,
        callbacks.LearningRateWarmupCallback,
    )
    return {
        **_with_base(framework, module, base.Callback, ordinary),
        **_with_base(framework, module, base.ModelCheckpoint, (callbacks.BestModelCheckpoint,)),
    }


def elastic_of(framework, module):
    """What the module `elastic` has."""
    of_callbacks = (elastic.CommitStateCallback, elastic.UpdateBatchStateCallback, elastic.UpdateEpochStateCallback)
    return {
        **_with_base(framework, module, framework.keras.callbacks.Callback, of_callbacks),
        **_with_base(framework, module, object, (elastic.KerasState,)),
        "run": _elastic.run,
    }


def _distributed(self, optimizer, local_layers=None, **options):
    """Takes the arguments of a method of Interface, `self` among them, for **locals()."""
    local = variables_of(local_layers, self._framework.keras.layers.Layer)
    result = Options(self._framework, **options).distributed(optimizer)
    for variable in local:
        result.register_local_var(variable)
    return result


class Interface:
    """Its methods are the functions of the module."""

    def __init__(self, keras):
        self._framework = Framework(keras)

    def functions(self):
        """{name: function or class} of FUNCTIONS."""
        return {**{name: getattr(self, name) for name in FUNCTIONS}, "Compression": compression_of(self._framework)}

    def DistributedOptimizer(
        self,
        optimizer,
        name=None,
        device_dense="",
        device_sparse="",
        compression=NoneCompressor,
        sparse_as_dense=False,
        gradient_predivide_factor=1.0,
        op=Average,
        backward_passes_per_step=1,
        average_aggregated_gradients=False,
        num_groups=0,
        groups=None,
        process_set=global_process_set,
        scale_local_gradients=True,
    ):
        """A new optimizer with the class name and the configuration of `optimizer`, which reduces gradients before it applies them.

        It is saved as its base class, so that models load without Horovod. gradient_predivide_factor: gradients are divided by it before
        the sum, and multiplied by it afterwards. backward_passes_per_step: gradients of so many passes are added up before they are
        reduced and applied; average_aggregated_gradients: and divided by their number. groups: how many, or lists of variables whose
        gradients are communicated together. sparse_as_dense, device_dense, device_sparse: for TensorFlow. Errors: ValueError.
        """
        return _distributed(**locals())

    def PartialDistributedOptimizer(
        self,
        optimizer,
        name=None,
        device_dense="",
        device_sparse="",
        compression=NoneCompressor,
        sparse_as_dense=False,
        gradient_predivide_factor=1.0,
        op=Average,
        groups=None,
        process_set=global_process_set,
        local_layers=None,
        scale_local_gradients=True,
        **options,
    ):
        """As DistributedOptimizer(), but gradients of local_layers, a layer or a list of them, are not reduced."""
        arguments = {**locals(), **options}
        del arguments["options"]
        return _distributed(**arguments)

    def load_model(self, filepath, custom_optimizers=None, custom_objects=None, compression=NoneCompressor, legacy_opts=False):
        """A model that was saved, with its optimizer made distributed; the optimizer's state is that of the file.

        custom_optimizers: classes of optimizers that are not Keras's. legacy_opts: accepted as Horovod has it.
        """
        objects = {entry.__name__: entry for entry in custom_optimizers or ()}
        objects.update(custom_objects or {})
        model = self._framework.keras.models.load_model(filepath, custom_objects=objects)
        Options(self._framework, compression=compression).convert(getattr(model, "optimizer", None))
        return model

    def broadcast_global_variables(self, root_rank):
        """In a graph of tf.compat.v1: gives all variables the values of root_rank's. Elsewhere there is no list of all variables."""
        if self._framework.executes_eagerly:
            raise RuntimeError(
                "broadcast_global_variables() is for graphs of tf.compat.v1; use hvd.callbacks.BroadcastGlobalVariablesCallback, or "
                "hvd.broadcast_variables(model.weights, root_rank)"
            )
        self._framework.broadcast_global_variables(root_rank)

    def broadcast_variables(self, variables, root_rank, process_set=global_process_set):
        """Gives variables the values of root_rank's. Errors: ValueError where ranks have different variables."""
        self._framework.broadcast(list(variables), root_rank, process_set)

    def allreduce(
        self,
        value,
        name=None,
        average=None,
        prescale_factor=1.0,
        postscale_factor=1.0,
        op=None,
        compression=None,
    ):
        """The reduction of a tensor, an array or numbers over all ranks: a tensor. compression: accepted; values are sent as they are."""
        value = self._framework.input(value)
        return self._framework.tensor(
            hvd.allreduce(value, average, name, op=op, prescale_factor=prescale_factor, postscale_factor=postscale_factor)
        )

    def allgather(self, value, name=None):
        """The values of all ranks, joined along the first dimension. Its extent may differ between ranks."""
        return self._framework.tensor(hvd.allgather(self._framework.input(value), name))

    def broadcast(self, value, root_rank, name=None):
        """The value of root_rank."""
        return self._framework.tensor(hvd.broadcast(self._framework.input(value), root_rank, name))

    def reducescatter(self, value, name=None, op=Average):
        """This rank's rows of the reduction."""
        return self._framework.tensor(hvd.reducescatter(self._framework.input(value), name, op=op))


class KerasInterface(Interface):
    """That of tutti.horovod.keras, whose DistributedOptimizer() has another order of arguments than that of tf.keras in Horovod."""

    def DistributedOptimizer(
        self,
        optimizer,
        name=None,
        device_dense="",
        device_sparse="",
        compression=NoneCompressor,
        sparse_as_dense=False,
        gradient_predivide_factor=1.0,
        op=Average,
        num_groups=0,
        groups=None,
        backward_passes_per_step=1,
        average_aggregated_gradients=False,
        process_set=global_process_set,
        scale_local_gradients=True,
    ):
        return _distributed(**locals())

    DistributedOptimizer.__doc__ = Interface.DistributedOptimizer.__doc__
