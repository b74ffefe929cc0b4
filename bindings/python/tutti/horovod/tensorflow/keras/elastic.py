"""Elastic training with Keras: KerasState, run(), and the callbacks that commit and count."""

import tensorflow as tf

from ..._keras.framework import Framework
from ..._keras.interface import elastic_of

globals().update(elastic_of(Framework(tf.keras), __name__))
