"""Makes the backend "tutti" known when torch is imported: the target of the package's entry point `torch.backends`.

Outside of the package tutti, whose import loads native modules: an exception here would end `import torch`.
"""

import logging

__all__ = ["register"]


def register():
    """Called by torch 2.5 and newer at the end of its import. Registers a function; never raises."""
    try:
        import torch.distributed as dist  # pylint: disable=import-outside-toplevel  # torch is about to be imported

        if not hasattr(dist.Backend, "TUTTI"):
            dist.Backend.register_backend("tutti", _create, devices=["cpu", "cuda"])
    except Exception:  # pylint: disable=broad-exception-caught  # `import torch` matters more; using the backend says why
        logging.getLogger(__name__).debug("the backend tutti is not registered", exc_info=True)


def _create(store, rank, size, timeout):
    """The first process group loads the package; what is wrong with it is raised there."""
    import tutti.torch  # pylint: disable=import-outside-toplevel

    return tutti.torch.create(store, rank, size, timeout)
