"""Shared by the examples: the process group from the launcher's variables, equal seeds, averages over the ranks, plots.

Knows torch's interface only, and no model. The ranks come from torchrun, `tutti run`, Open MPI's or MPICH's mpirun, or there is one.
"""
import argparse
import datetime
import itertools
import os
import sys
import tempfile

import torch
import torch.distributed as dist

RANK_VARIABLES = (("RANK", "WORLD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE"))


def parser(description, steps):
    """Arguments that every example has."""
    result = argparse.ArgumentParser(description=description)
    result.add_argument("--backend", default="tutti", help="of torch.distributed: tutti (default), gloo, mpi")
    result.add_argument("--steps", type=int, default=steps, help="optimizer steps (default: %(default)s)")
    result.add_argument("--seed", type=int, default=0, help="of everything that is drawn (default: %(default)s)")
    result.set_defaults(quiet=False)
    return result


def place():
    """(rank, size) as the launcher says, or (0, 1)."""
    for rank, size in RANK_VARIABLES:
        if rank in os.environ and size in os.environ:
            return int(os.environ[rank]), int(os.environ[size])
    return 0, 1


meetings = itertools.count()


def rendezvous(rank, size):
    """Where the ranks meet, as keywords of init_process_group."""
    if size == 1:
        return {"store": dist.HashStore()}
    if "MASTER_ADDR" in os.environ:
        return {"init_method": "env://"}
    # `tutti run` and Open MPI name the job; on one node a file does for a meeting place.
    job = os.environ.get("TUTTI_JOB_ID", os.environ.get("PMIX_NAMESPACE"))
    if job is None or os.environ.get("TUTTI_ADDRESS", "local") != "local":
        sys.exit(f"rank {rank} of {size}: MASTER_ADDR: not set; set MASTER_ADDR and MASTER_PORT to a free port of rank 0's machine, or use torchrun")
    return {"init_method": f"file://{tempfile.gettempdir()}/tutti-torch-{job}-{next(meetings)}"}


def why_unavailable(backend):
    """Why this torch has no such backend; empty if it has."""
    if backend == "mpi" and not dist.is_mpi_available():
        return f"torch {torch.__version__} is built without MPI"
    if backend == "gloo" and hasattr(dist, "is_gloo_available") and not dist.is_gloo_available():
        return f"torch {torch.__version__} is built without gloo"
    return ""


class Job:
    """The ranks that run this program, as a context: with job.Job("tutti") as ranks: ..."""

    def __init__(self, backend):
        reason = why_unavailable(backend)
        if reason:
            sys.exit(f"--backend {backend}: {reason}")
        if backend == "tutti":
            import tutti.torch  # noqa: F401  # pylint: disable=import-outside-toplevel,unused-import
        rank, size = place()
        if "OMP_NUM_THREADS" not in os.environ:
            ranks_here = int(os.environ.get("LOCAL_WORLD_SIZE", size))
            torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // ranks_here))
        dist.init_process_group(backend, rank=rank, world_size=size, timeout=datetime.timedelta(minutes=5), **rendezvous(rank, size))
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def __enter__(self):
        return self

    def __exit__(self, kind, _value, _traceback):
        if kind is None:
            dist.destroy_process_group()

    def say(self, text):
        """Rank 0 speaks for all."""
        if self.rank == 0:
            print(text, flush=True)

    def mean(self, number):
        """The mean of a number over the ranks."""
        tensor = torch.tensor([float(number)], dtype=torch.float64)
        dist.all_reduce(tensor)
        return tensor.item() / self.size

    def gather(self, tensor):
        """The tensors of all ranks, which have one shape, in rank order."""
        tensors = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(tensors, tensor.contiguous())
        return tensors


def is_said(step, steps):
    """Whether the loss of this step, from 1, is printed: about twenty of them, with the first and the last."""
    return step in (1, steps) or step % max(1, steps // 20) == 0


def pyplot():
    """matplotlib's, drawing to files, or None with a line that says what is missing."""
    try:
        import matplotlib  # pylint: disable=import-outside-toplevel
        matplotlib.use("Agg")
        from matplotlib import pyplot as plot  # pylint: disable=import-outside-toplevel
        return plot
    except ImportError:
        print("--plot: matplotlib is not installed (Debian: python3-matplotlib, or pip install matplotlib); no picture is drawn", file=sys.stderr)
        return None
