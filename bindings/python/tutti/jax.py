"""JAX over tutti. On CPUs, multi-process JAX needs no change of the program:

    import tutti.jax
    tutti.jax.install()         # before `import jax`
    import jax
    jax.distributed.initialize("10.0.0.1:1234", 2, rank)
    ...                         # psum, all_gather, ppermute, shard_map, sharded jit

docs/jax.md has the rest.
"""

import ctypes
import os
import sys

import tutti

__all__ = ["install", "library"]

_held = []  # what native code refers to, for the life of the process


def library():
    """The path of the library for MPITRAMPOLINE_LIB."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "libtutti_jax_mpi.so")


def install():
    """Make tutti carry the collectives of multi-process JAX on CPUs.

    Sets JAX_CPU_COLLECTIVES_IMPLEMENTATION and MPITRAMPOLINE_LIB, which jaxlib reads when it is loaded: call it before JAX is imported.
    The ranks meet through JAX's coordinator (jax.distributed.initialize), or are those of tutti.init() where that was called before.
    """
    if "jaxlib" in sys.modules and os.environ.get("MPITRAMPOLINE_LIB") != library():
        raise RuntimeError("tutti.jax.install: jaxlib was loaded before; call tutti.jax.install() before the first `import jax`")
    os.environ["MPITRAMPOLINE_LIB"] = library()
    os.environ["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "mpi"
    if _held:
        return
    native = ctypes.CDLL(library())
    maker = ctypes.CFUNCTYPE(ctypes.c_void_p)(_make_world)
    native.tutti_jax_set_world.argtypes = [type(maker)]
    native.tutti_jax_set_world.restype = None
    native.tutti_jax_set_world(maker)
    _held.extend([native, maker])


class _Store:
    """JAX's key-value store in the form that tutti.init() takes."""

    def __init__(self, client):
        self._client = client

    def set(self, key, value):
        self._client.key_value_set_bytes(key, value)

    def get(self, key):
        return self._client.blocking_key_value_get_bytes(key, 300_000)


def _make_world():
    """The group of all processes, as XLA's MPI_COMM_WORLD. Called when JAX makes its CPU client."""
    from jax._src import distributed  # pylint: disable=import-outside-toplevel  # JAX must not be imported before install()

    state = distributed.global_state
    if not tutti.is_initialized():
        tutti.init(store=_Store(state.client), store_prefix="tutti/jax", rank=state.process_id, size=state.num_processes)
    if tutti.size() != state.num_processes:
        raise RuntimeError(f"tutti.jax: tutti has {tutti.size()} ranks and jax.distributed has {state.num_processes} processes")
    group = tutti.world().create(range(tutti.size()), tag="jax")  # XLA's threads and the program must not share one
    _held.append(group)
    return group.c_handle


if __name__ == "__main__":
    print(library())
