"""Horovod's interface over tutti, for numpy arrays. See tutti.horovod.torch for PyTorch.

    import tutti.horovod as hvd
    hvd.init()                                     # under tutti run, horovodrun, mpiexec, srun, torchrun, or alone
    mean = hvd.allreduce(gradient, name="gradient")

Functions with a final underscore work in place. Functions that end in `_async` return a handle for poll() and synchronize(). Ranks are
matched by name, so they may call in different orders. Errors: HorovodInternalError where a collective fails, ValueError for arguments.
docs/horovod.md has the rest.
"""

import sys

try:
    import numpy
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"tutti.horovod needs numpy, which this Python does not have: {sys.executable} -m pip install numpy", name=missing.name
    ) from missing

from ._basics import *  # noqa: F401,F403
from ._basics import BASICS
from ._front_end import FUNCTIONS, FrontEnd
from ._numpy import arrays as _arrays
from ._objects import allgather_object, broadcast_object
from ._operations import barrier, join, poll, synchronize
from ._launch import run
from .compression import NoneCompressor, make_cast_compressor
from .exceptions import HorovodInternalError, HostsUpdatedInterrupt
from .process_sets import *  # noqa: F401,F403
from .process_sets import PROCESS_SETS

__all__ = [
    *BASICS,
    *FUNCTIONS,
    *PROCESS_SETS,
    "Compression",
    "HorovodInternalError",
    "HostsUpdatedInterrupt",
    "allgather_object",
    "barrier",
    "broadcast_object",
    "join",
    "poll",
    "run",
    "synchronize",
]


class Compression:
    """Dtypes on their way between ranks."""

    none = NoneCompressor
    fp16 = make_cast_compressor("FP16Compressor", numpy.float16, (numpy.float32, numpy.float64), lambda array, dtype: array.astype(dtype))


globals().update(FrontEnd(_arrays).functions())
