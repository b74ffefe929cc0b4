"""Functions about the job, under Horovod's names: the same for all frameworks."""

import ctypes
import ctypes.util
import enum
import os

from . import _build, _job
from .process_sets import ProcessSet
from .process_sets import get_process_set_ids_and_ranks as _get_process_set_ids_and_ranks  # noqa: F401  # as Horovod has it
from .process_sets import global_process_set

BASICS = (
    "init shutdown is_initialized rank size local_rank local_size cross_rank cross_size is_homogeneous start_timeline stop_timeline "
    "mpi_built mpi_enabled mpi_threads_supported gloo_built gloo_enabled nccl_built ddl_built ccl_built cuda_built rocm_built "
    "Average Sum Adasum Min Max Product"
).split()
__all__ = BASICS


class ReduceOp(enum.IntEnum):
    """Values as Horovod has them."""

    AVERAGE = 0
    SUM = 1
    ADASUM = 2
    MIN = 3
    MAX = 4
    PRODUCT = 5


Average, Sum, Adasum, Min, Max, Product = ReduceOp


def init(comm=None, process_sets=None):
    """Meets the other ranks of the job. Called again, it only lets these process sets stand for those of the same ranks.

    comm: ranks of the job that take part (None: all), or a communicator of mpi4py. process_sets: list of ProcessSet or of lists of ranks.
    Works under tutti run, horovodrun, mpiexec, mpirun, srun and torchrun, or alone.
    """
    _job.init(comm, process_sets, global_process_set, lambda entry: entry if isinstance(entry, ProcessSet) else ProcessSet(entry))


def shutdown():
    """Ends the job on all ranks. Operations that are under way fail with HorovodInternalError."""
    _job.shutdown()


def is_initialized():
    """Whether init() was called, and shutdown() was not."""
    return _job.is_initialized()


def rank():
    """This process's rank. Errors of this and the next functions: ValueError before init()."""
    return _job.current().rank


def size():
    """How many processes the job has."""
    return _job.current().size


def local_rank():
    """This process's number among those of its node."""
    return _job.current().place.local_rank


def local_size():
    """How many processes this node has."""
    return _job.current().place.local_size


def cross_rank():
    """The number of this node among those that have a process with this local rank."""
    return _job.current().place.cross_rank


def cross_size():
    """How many nodes have a process with this local rank."""
    return _job.current().place.cross_size


def is_homogeneous():
    """Whether all nodes have equally many processes."""
    return _job.current().place.is_homogeneous


def start_timeline(file_path, mark_cycles=False):
    """Rank 0 writes a timeline to file_path from now on. All ranks may call it."""
    job = _job.current()
    if job.rank == 0:
        job.membership(global_process_set).queue.start_timeline(file_path, mark_cycles)


def stop_timeline():
    """Ends the timeline and completes its file."""
    job = _job.current()
    if job.rank == 0:
        job.membership(global_process_set).queue.stop_timeline()


def mpi_threads_supported():
    """Whether MPI may be called by several threads beside this package: it may, since the package does not use MPI."""
    _job.current()
    return True


def _is_built(what):
    def built(*_args, **_kwargs):
        return False

    built.__doc__ = f"Whether operations are carried by {what}: no, tutti carries them itself."
    return built


mpi_built, mpi_enabled = _is_built("MPI"), _is_built("MPI")
# Programs ask one of the two before they use a function that the other lacks; tutti has what gloo's controller has.
ddl_built, ccl_built, rocm_built = _is_built("DDL"), _is_built("oneCCL"), _is_built("ROCm")


def gloo_built(*_args, **_kwargs):
    """True: processes meet without MPI, as with Horovod's gloo controller."""
    return True


def gloo_enabled():
    """True, as gloo_built()."""
    return True


def cuda_built(*_args, **_kwargs):
    """Whether tensors on GPUs can be communicated: CUDA is in this build, and its driver on this machine."""
    return _build.HAS_CUDA and _load("cuda") is not None


def nccl_built(*_args, **_kwargs):
    """NCCL's version as a number (22703: 2.27.3), where it is in this build and on this machine; else 0."""
    library = _load("nccl") if _build.HAS_NCCL else None
    version = ctypes.c_int(0)
    return version.value if library is not None and library.ncclGetVersion(ctypes.byref(version)) == 0 else 0


def _load(name):
    path = os.environ.get(f"TUTTI_{name.upper()}_LIBRARY") or ctypes.util.find_library(name)
    try:
        return None if path is None else ctypes.CDLL(path)
    except OSError:
        return None
