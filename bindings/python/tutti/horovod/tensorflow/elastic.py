"""Elastic training of TensorFlow's variables. See tutti.horovod.elastic for what is there."""

import functools

import tensorflow as tf

from .. import elastic as _elastic
from ..elastic import ObjectState, State
from ..exceptions import HorovodInternalError
from .functions import broadcast_object, broadcast_variables
from .mpi_ops import rank

__all__ = ["ObjectState", "State", "TensorFlowKerasState", "TensorFlowState", "run"]


def run(func):
    """Decorates func(state, ...): the state is rank 0's when it starts. Errors: HorovodInternalError where a rank is lost."""

    @functools.wraps(func)
    def with_horovods_errors(state, *args, **kwargs):
        try:
            return func(state, *args, **kwargs)
        except (tf.errors.UnknownError, tf.errors.AbortedError) as error:
            if "Tutti" in error.message or "Horovod" in error.message:
                raise HorovodInternalError(error.message) from error
            raise

    return _elastic.run(with_horovods_errors)


class TensorFlowState(ObjectState):
    """Variables, and keyword arguments as attributes, which are pickled.

    variables: those of tf.compat.v1.global_variables() by default. session: of a graph; by default the default session.
    """

    def __init__(self, variables=None, session=None, **kwargs):
        self.variables = list(variables or tf.compat.v1.global_variables())
        self.session = session
        self._broadcast = None
        if not tf.executing_eagerly():
            self.session = session or tf.compat.v1.get_default_session()
            self._broadcast = broadcast_variables(self.variables, root_rank=0)
        self._values = []
        self._save_variables()
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **kwargs)

    def save(self):
        self._save_variables()
        super().save()

    def restore(self):
        for variable, value in zip(self.variables, self._values):
            if self._broadcast is None:
                variable.assign(value)
            else:
                variable.load(value, self.session)
        super().restore()

    def sync(self):
        if self._broadcast is None:
            broadcast_variables(self.variables, root_rank=0)
        else:
            self.session.run(self._broadcast)
        self._save_variables()
        super().sync()

    def _save_variables(self):
        eager = self._broadcast is None
        self._values = [variable.numpy() for variable in self.variables] if eager else self.session.run(self.variables)


def __getattr__(name):
    """A class over Keras, whose import takes seconds."""
    if name != "TensorFlowKerasState":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .keras.elastic import KerasState

    class TensorFlowKerasState(KerasState):
        """As KerasState of tutti.horovod.tensorflow.keras.elastic. backend: accepted as Horovod has it."""

        __qualname__ = name

        def __init__(self, model, optimizer=None, backend=None, **kwargs):
            self.backend = backend
            super().__init__(model, optimizer, **kwargs)

    globals()[name] = TensorFlowKerasState
    return TensorFlowKerasState
