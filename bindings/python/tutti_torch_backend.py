"""Makes the backend "tutti" known when torch is imported: the target of the package's entry point `torch.backends`.

Outside of the package tutti, whose import loads native modules: an exception here would end `import torch`.
"""

import logging
import os

__all__ = ["install_as", "install_from_environment", "register"]

VARIABLE = "TUTTI_TORCH_INSTALL_AS"

# Names that mean tutti in this process.
_installed_as = set()
# A complaint about VARIABLE is raised where a backend is named, because `import torch` must work.
_refusals = []


def register():
    """Called by torch 2.5 and newer at the end of its import. Registers a function; never raises."""
    try:
        import torch.distributed as dist  # pylint: disable=import-outside-toplevel  # torch is about to be imported

        if not hasattr(dist.Backend, "TUTTI"):
            dist.Backend.register_backend("tutti", _create, devices=["cpu", "cuda"])
        install_from_environment()
    except Exception:  # pylint: disable=broad-exception-caught  # `import torch` matters more; using the backend says why
        logging.getLogger(__name__).debug("the backend tutti is not registered", exc_info=True)


def install_as(name="gloo"):
    """From here on the backend `name` ("gloo", "mpi", "nccl") is tutti: for programs that hard-code it.

    It counts for process groups that are made later, also where the name is part of "cpu:gloo,cuda:nccl" or torch's default.
    `torch.distributed.get_backend()` then says "tutti". Raises ValueError for a name that torch does not have.
    """
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel  # this module is loaded by `import torch`

    known = sorted(getattr(dist.Backend, word) for word in ("GLOO", "MPI", "NCCL", "UCC") if hasattr(dist.Backend, word))
    if not isinstance(name, str) or name.lower() not in known:
        raise ValueError(f"tutti.torch.install_as: expected one of {', '.join(known)}, got {name!r}")
    _replace_parsing(dist.Backend)
    _installed_as.add(name.lower())


def install_from_environment():
    """install_as for each name of TUTTI_TORCH_INSTALL_AS, with commas between. A wrong one is an error where a backend is named."""
    for name in filter(None, (word.strip() for word in os.environ.get(VARIABLE, "").split(","))):
        try:
            install_as(name)
        except ValueError as error:
            import torch.distributed as dist  # pylint: disable=import-outside-toplevel  # install_as has come as far

            _replace_parsing(dist.Backend)
            _refusals[:] = [f"{VARIABLE}: {str(error).partition(': ')[2]}"]


def _replace_parsing(backends):
    """Once. Every name that torch is given comes through here, whoever has imported init_process_group before."""
    parse = backends.__new__
    if getattr(parse, "knows_tutti", False):
        return

    def parse_and_replace(cls, backend, *rest):
        if _refusals:
            raise ValueError(_refusals[0])
        value = parse(cls, backend, *rest)
        return "tutti" if value in _installed_as else value

    parse_and_replace.knows_tutti = True
    backends.__new__ = staticmethod(parse_and_replace)


def _create(store, rank, size, timeout):
    """The first process group loads the package; what is wrong with it is raised there."""
    import tutti.torch  # pylint: disable=import-outside-toplevel

    return tutti.torch.create(store, rank, size, timeout)
