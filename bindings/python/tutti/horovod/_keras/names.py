"""What tutti.horovod.keras and tutti.horovod.tensorflow.keras have that needs no Keras."""

from .. import allgather_object, broadcast_object  # noqa: F401
from .._basics import *  # noqa: F401,F403
from .._launch import run  # noqa: F401
from .._operations import barrier, join  # noqa: F401
from ..exceptions import HorovodInternalError, HostsUpdatedInterrupt  # noqa: F401
from ..process_sets import *  # noqa: F401,F403
