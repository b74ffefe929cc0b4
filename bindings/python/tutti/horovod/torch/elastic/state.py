"""The state of a training: models, optimizers, samplers and other objects."""

import copy

import torch

from ...elastic import ObjectState
from ..functions import broadcast_object, broadcast_optimizer_state, broadcast_parameters
from ..mpi_ops import rank
from .sampler import ElasticSampler


class StateHandler:
    """Saves, restores and synchronizes one value."""

    def __init__(self, value):
        self.value = value
        self._saved = None
        self.save()

    def save(self):
        self._saved = copy.deepcopy(self.value.state_dict())

    def restore(self):
        self.value.load_state_dict(self._saved)

    def sync(self):
        raise NotImplementedError

    def set_value(self, value):
        self.value = value
        self.save()


class ModelStateHandler(StateHandler):
    def sync(self):
        broadcast_parameters(self.value.state_dict(), root_rank=0)
        self.save()


class OptimizerStateHandler(StateHandler):
    def sync(self):
        broadcast_optimizer_state(self.value, root_rank=0)
        self.save()


class SamplerStateHandler(StateHandler):
    def sync(self):
        self.value.load_state_dict(broadcast_object(self.value.state_dict()))
        self.save()


_handler_registry = [
    (torch.nn.Module, ModelStateHandler),
    (torch.optim.Optimizer, OptimizerStateHandler),
    (ElasticSampler, SamplerStateHandler),
]


def get_handler_registry():
    """[(type, StateHandler)]: which handler a value gets."""
    return _handler_registry


def set_handler_registry(registry):
    global _handler_registry
    _handler_registry = registry


class TorchState(ObjectState):
    """model, optimizer and keyword arguments as attributes. Those without a handler are pickled."""

    def __init__(self, model=None, optimizer=None, **kwargs):
        values = {"model": model, "optimizer": optimizer, **kwargs}
        self._handlers = {}
        for name, value in list(values.items()):
            for kind, handler in get_handler_registry():
                if isinstance(value, kind):
                    self._handlers[name] = handler(values.pop(name))
                    break
        for name, handler in self._handlers.items():
            super().__setattr__(name, handler.value)
        super().__init__(bcast_object=broadcast_object, get_rank=rank, **values)

    def __setattr__(self, name, value):
        if name in self.__dict__.get("_handlers", {}):
            self._handlers[name].set_value(value)
        super().__setattr__(name, value)

    def save(self):
        for handler in self._handlers.values():
            handler.save()
        super().save()

    def restore(self):
        for handler in self._handlers.values():
            handler.restore()
        super().restore()

    def sync(self):
        for handler in self._handlers.values():
            handler.sync()
        super().sync()

    def reset(self):
        for handler in self._handlers.values():
            if isinstance(handler.value, ElasticSampler):
                handler.value.reset()
