"""Helpers that programs import from horovod.common.util."""

import importlib.util
import sys

from ._basics import ccl_built, ddl_built, gloo_built, mpi_built, nccl_built, rocm_built  # noqa: F401


def num_rank_is_power_2(num_rank):
    """Whether it is 1, 2, 4, 8, ..."""
    return num_rank > 0 and num_rank & (num_rank - 1) == 0


def split_list(values, count):
    """The list in `count` parts; the first ones get one value more where they do not divide."""
    each, more = divmod(len(values), count)
    return [values[i * each + min(i, more) : (i + 1) * each + min(i + 1, more)] for i in range(count)]


def is_iterable(value):
    return hasattr(value, "__iter__")


def gpu_available(framework, verbose=False):
    """Whether a framework that is imported sees a GPU."""
    torch = sys.modules.get("torch")
    return framework == "torch" and torch is not None and torch.cuda.is_available()


def extension_available(framework, verbose=False):
    """Whether a framework can be used: it needs no extension here, only to be installed."""
    return importlib.util.find_spec(framework) is not None
