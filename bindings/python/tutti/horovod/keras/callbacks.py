"""Callbacks of model.fit()."""

import keras

from .._keras.framework import Framework
from .._keras.interface import callbacks_of

globals().update(callbacks_of(Framework(keras), __name__))
