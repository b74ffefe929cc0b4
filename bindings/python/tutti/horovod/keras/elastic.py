"""Elastic training with Keras: KerasState, run(), and the callbacks that commit and count."""

import keras

from .._keras.framework import Framework
from .._keras.interface import elastic_of

globals().update(elastic_of(Framework(keras), __name__))
