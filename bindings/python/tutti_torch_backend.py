"""Makes the backend "tutti" known when torch is imported: the target of the package's entry point `torch.backends`.

Outside of the package tutti, whose import loads native modules: an exception here would end `import torch`.
"""

import logging

__all__ = ["install_as", "register"]

# Names that mean tutti in this process.
_installed_as = set()


def register():
    """Called by torch 2.5 and newer at the end of its import. Registers a function; never raises."""
    try:
        import torch.distributed as dist  # pylint: disable=import-outside-toplevel  # torch is about to be imported

        if not hasattr(dist.Backend, "TUTTI"):
            dist.Backend.register_backend("tutti", _create, devices=["cpu", "cuda"])
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
    if not _installed_as:
        parse = dist.Backend.__new__

        # Every name that torch is given comes through here, whoever has imported init_process_group before.
        def parse_and_replace(cls, backend, *rest):
            value = parse(cls, backend, *rest)
            return "tutti" if value in _installed_as else value

        dist.Backend.__new__ = staticmethod(parse_and_replace)
    _installed_as.add(name.lower())


def _create(store, rank, size, timeout):
    """The first process group loads the package; what is wrong with it is raised there."""
    import tutti.torch  # pylint: disable=import-outside-toplevel

    return tutti.torch.create(store, rank, size, timeout)
