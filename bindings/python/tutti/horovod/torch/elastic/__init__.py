"""Elastic training of PyTorch's models. See tutti.horovod.elastic for what is there."""

from ...elastic import ObjectState, State, run
from .sampler import ElasticSampler
from .state import TorchState

__all__ = ["ElasticSampler", "ObjectState", "State", "TorchState", "run"]
