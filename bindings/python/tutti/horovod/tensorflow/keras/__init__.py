"""Horovod's interface for tf.keras over tutti: what tutti.horovod.keras is for the package keras. See there.

import tutti.horovod.tensorflow.keras as hvd
"""

import tensorflow as tf

from ... import allgather_object, broadcast_object
from ..._basics import *  # noqa: F401,F403
from ..._keras.interface import Interface
from ..._launch import run
from ..._operations import barrier, join
from ...exceptions import HorovodInternalError, HostsUpdatedInterrupt
from ...process_sets import ProcessSet, add_process_set, get_process_set_ids_and_ranks, global_process_set, remove_process_set
from . import callbacks, elastic

globals().update(Interface(tf.keras).functions())
