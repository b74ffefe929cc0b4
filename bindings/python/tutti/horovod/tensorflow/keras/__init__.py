"""Horovod's interface for tf.keras over tutti:

    import tutti.horovod.tensorflow.keras as hvd

All else is as in tutti.horovod.keras, which is for the package keras.
"""

import tensorflow as tf

from ..._keras.interface import Interface
from ..._keras.names import *  # noqa: F401,F403
from . import callbacks, elastic

globals().update(Interface(tf.keras).functions())
