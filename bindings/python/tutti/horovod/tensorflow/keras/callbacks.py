"""Callbacks of model.fit()."""

import tensorflow as tf

from ..._keras.framework import Framework
from ..._keras.interface import callbacks_of

globals().update(callbacks_of(Framework(tf.keras), __name__))
