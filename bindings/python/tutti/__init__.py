"""tutti: collective communication between the ranks of a job.

    import numpy, tutti
    tutti.init()                                   # under tutti run, mpiexec, mpirun, srun, torchrun, or alone
    gradient = numpy.full(1 << 20, tutti.rank(), dtype="float32")
    tutti.allreduce(gradient, op="avg")            # in place, blocking
    work = tutti.allreduce_async(gradient)         # in the background
    work.wait()

Arrays are whatever has the buffer protocol (numpy, array, memoryview) or __dlpack__ (torch's tensors of the CPU), with
their elements row after row in memory; they are never copied. Functions of the module mean the world that init() made;
every one that takes part in communication is also a method of Group. Errors: tutti.Error and its subclasses, where the
library decides; TypeError and ValueError for arguments. docs/python.md has the rest.
"""

from . import _native
from ._errors import (
    AbortedError,
    Error,
    InternalError,
    InvalidArgumentError,
    MismatchError,
    PeerFailedError,
    RefusedError,
    ResourceExhaustedError,
    TimeoutError,  # pylint: disable=redefined-builtin
    UnsupportedError,
)
from ._native import *  # pylint: disable=wildcard-import

__version__ = _native.version()
__all__ = [name for name in dir(_native) if not name.startswith("_")] + [
    "AbortedError",
    "Error",
    "InternalError",
    "InvalidArgumentError",
    "MismatchError",
    "PeerFailedError",
    "RefusedError",
    "ResourceExhaustedError",
    "TimeoutError",
    "UnsupportedError",
]
