"""Helpers that programs import from horovod.common.util."""

import importlib.util
import re
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
    """Whether a framework that is imported, torch or tensorflow, sees a GPU."""
    module = sys.modules.get(framework)
    if framework == "torch" and module is not None:
        return module.cuda.is_available()
    return framework == "tensorflow" and module is not None and bool(module.config.list_physical_devices("GPU"))


def extension_available(framework, verbose=False):
    """Whether a framework can be used: it needs no extension here, only to be installed."""
    return importlib.util.find_spec(framework) is not None


def check_extension(ext_name, ext_env_var, pkg_path, *args):
    """Errors: ImportError where tutti has no front end of the name, such as "horovod.torch", or its framework is not installed.

    The other arguments are accepted as Horovod has them.
    """
    framework = ext_name.rpartition(".")[2]
    if importlib.util.find_spec("tutti.horovod." + framework) is None:
        raise ImportError(f"{ext_name}: tutti has no Horovod interface for {framework}")
    if not extension_available(framework):
        raise ImportError(f"{ext_name}: {framework} is not installed")


def is_version_greater_equal_than(ver, target):
    """Whether ver is target, major.minor.patch, or a later version. Errors: ValueError for another form, and for no strings."""
    if not isinstance(ver, str) or not isinstance(target, str):
        raise ValueError(f"expected versions as strings, got {ver!r} and {target!r}")
    if len(target.split(".")) != 3:
        raise ValueError(f"expected a target of the form major.minor.patch, got {target!r}")
    try:
        from packaging.version import parse  # pylint: disable=import-outside-toplevel  # not everywhere installed
    except ImportError:
        parse = _numbers
    return parse(ver) >= parse(target)


def _numbers(version):
    """The release numbers of a version, with what follows them left out."""
    numbers = [int(number) for number in re.match(r"v?(\d+(?:\.\d+)*)", version.strip()).group(1).split(".")]
    while numbers and numbers[-1] == 0:
        del numbers[-1]  # 2.0 is 2
    return numbers
