"""torch.distributed over tutti: import this module, then use the backend "tutti".

    import torch.distributed as dist
    import tutti.torch                           # not needed with torch 2.5 or newer and an installed package

    dist.init_process_group("tutti")             # or "cpu:tutti,cuda:nccl"

It needs a release of torch that tutti was built for. docs/pytorch.md has the rest.
"""

import atexit
import functools
import importlib
import os
import re
import sys

try:
    import torch
    import torch.distributed as dist
except ModuleNotFoundError as missing:
    raise ModuleNotFoundError(
        f"tutti.torch needs {missing.name}, which this Python does not have: {sys.executable} -m pip install {missing.name}",
        name=missing.name,
    ) from missing
from tutti_torch_backend import install_as, install_from_environment

from . import _torch_build


def _release(version):
    """Behind the + is for which devices torch was built; modules for one fit all of its release."""
    return version.split("+")[0]


def _module_for_this_torch():
    """The package may have modules for several releases of torch: one built beside it, others in folders (tools/dev/wheels)."""
    here = _release(torch.__version__)
    if _release(_torch_build.VERSION) == here:
        return importlib.import_module("._torch", __package__)
    folder = "torch_" + re.sub(r"\W", "_", here)
    if os.path.isdir(os.path.join(os.path.dirname(__file__), folder)):
        return importlib.import_module(f".{folder}._torch", __package__)
    raise ImportError(
        (
            f"tutti.torch: tutti was built for torch {_torch_build.VERSION} and this interpreter has torch {torch.__version__}"
            if _torch_build.VERSION
            else f"tutti.torch: tutti was built without its backend for torch: {_torch_build.REASON}"
        )
        + f". In a clone of tutti, make a wheel and install it:\n  tools/dev/wheels --python {sys.executable} --torch {here}\n"
        f"  {sys.executable} -m pip install --force-reinstall --no-deps build/dist/tutti-*.whl"
    )


_torch = _module_for_this_torch()

__all__ = ["dead_ranks", "empty", "install_as"]


def create(store, rank, size, timeout):
    """The backend of one process group, for torch.distributed, which calls it."""
    # Waiting for a future only sleeps, and autograd's threads wait for nothing else.
    names = ("TUTTI_PROGRESS_THREADS", "TUTTI_WORKERS", "MLSL_NUM_SERVERS")  # the first that is set counts
    if next((os.environ[name] for name in names if os.environ.get(name)), "").strip() == "0":
        raise ValueError(
            "tutti.torch: TUTTI_PROGRESS_THREADS: expected at least 1, got 0: torch's futures need a thread that carries operations on"
        )
    return _torch.create(store, rank, size, timeout.total_seconds(), not dist.is_initialized() and _is_of_rank_0(store))


def _is_of_rank_0(store):
    """Whether rank 0 has the server of this store: neither torchrun, nor somebody's own."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    return isinstance(store, dist.TCPStore) and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"


def empty(*size, dtype=None, group=None):
    """A tensor of the CPU, zeroed, in memory that the other ranks of this node can map: collectives on it copy less.

    size: extents, or one sequence of them. group: whose ranks (default: the world's). The memory stays until the last tensor in it is gone,
    also after the group was left.
    """
    if len(size) == 1 and not isinstance(size[0], int):
        size = tuple(size[0])
    group = dist.group.WORLD if group is None else group
    if group is None:
        raise ValueError("tutti.torch.empty: there is no process group: call init_process_group first")
    backend = _cpu_backend(group)
    return _torch.allocate(backend, size, torch.empty(0, dtype=dtype))


def dead_ranks(group=None):
    """The ranks of a group (default: the world's) that have died, sorted: for torch.distributed.shrink_group.

    Every survivor calls it, after an operation of the group has failed. They agree, so all get the same list. Then the group can only be shrunk or
    destroyed. A rank that lives and does not call is named in an error after the group's timeout. Of a group that works, it returns [] at once.
    """
    backend = _cpu_backend(group)
    if not _torch.is_tutti(backend) and hasattr(group or dist.group.WORLD, "_get_backend"):
        backend = (group or dist.group.WORLD)._get_backend(torch.device("cuda"))
    if not _torch.is_tutti(backend):
        raise ValueError("tutti.torch.dead_ranks: group: expected a group of tutti's that this rank belongs to")
    return _torch.dead_ranks(backend)


def _cpu_backend(group):
    """The group's backend for the CPU; in torch 1.13 that is the group itself. None where this rank is no member."""
    group = dist.group.WORLD if group is None else group
    if not hasattr(group, "_get_backend"):
        return group
    try:
        return group._get_backend(torch.device("cpu"))
    except RuntimeError:  # it has none for the CPU
        return None


def _cover_monitored_barrier():
    """torch.distributed.monitored_barrier refuses every backend but gloo by its name. Groups of tutti's have it, too."""
    of_gloo = dist.monitored_barrier

    @functools.wraps(of_gloo)
    def monitored_barrier(group=dist.group.WORLD, timeout=None, wait_all_ranks=False):
        backend = _cpu_backend(group) if dist.is_initialized() else None
        if not _torch.is_tutti(backend):
            return of_gloo(group, timeout, wait_all_ranks)
        if timeout is None:
            return backend.monitored_barrier(wait_all_ranks=wait_all_ranks)
        return backend.monitored_barrier(timeout, wait_all_ranks)

    dist.monitored_barrier = dist.distributed_c10d.monitored_barrier = monitored_barrier


_cover_monitored_barrier()
if hasattr(dist.Backend, "TUTTI"):
    pass  # by tutti_torch_backend, when torch was imported
elif hasattr(dist.Backend, "backend_capability"):
    dist.Backend.register_backend("tutti", create, devices=["cpu", "cuda"])
else:
    dist.Backend.register_backend("tutti", create)
install_from_environment()  # again where torch has done it; torch before 2.5 does not
# A rank that ends without leaving its groups is taken for dead by the others.
atexit.register(_torch.close_all)
