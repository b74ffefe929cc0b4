"""JAX over tutti. On CPUs, multi-process JAX needs no change of the program:

    import tutti.jax
    tutti.jax.install()         # before `import jax`
    import jax
    jax.distributed.initialize("10.0.0.1:1234", 2, rank)
    ...                         # psum, all_gather, ppermute, shard_map, sharded jit

docs/jax.md has the rest.
"""

import ctypes
import functools
import os
import sys
import threading

import tutti

__all__ = ["Queue", "allgather", "allreduce", "alltoall", "broadcast", "grouped_allreduce", "install", "library", "reduce_scatter"]

_held = []  # what native code refers to, for the life of the process
_is_installed = False


def library():
    """The path of the library for MPITRAMPOLINE_LIB."""
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "libtutti_jax.so")


@functools.cache
def _native():
    try:
        return ctypes.CDLL(library())
    except OSError as error:
        raise RuntimeError(f"tutti.jax: {library()} cannot be loaded, so this tutti cannot serve JAX: {error}") from error


def install():
    """Make tutti carry the collectives of multi-process JAX on CPUs. Called again, it does nothing.

    Sets JAX_CPU_COLLECTIVES_IMPLEMENTATION and MPITRAMPOLINE_LIB, which jaxlib reads when it is loaded: call it before JAX is imported.
    The ranks meet through JAX's coordinator (jax.distributed.initialize), or are those of tutti.init() where that was called before.
    Errors: RuntimeError where it is too late, where one of the variables asks for something else, and where there is no library.
    """
    global _is_installed  # pylint: disable=global-statement
    if _is_installed:
        return
    _check_variables()
    is_jax_there = "jax" in sys.modules
    if "jaxlib" in sys.modules and not os.environ.get("MPITRAMPOLINE_LIB"):
        raise RuntimeError("tutti.jax.install: jaxlib was loaded before; call tutti.jax.install() before the first `import jax`")
    if is_jax_there:
        from jax._src import xla_bridge  # pylint: disable=import-outside-toplevel

        if xla_bridge.backends_are_initialized():
            raise RuntimeError("tutti.jax.install: JAX has made its devices before; call tutti.jax.install() before the first `import jax`")
    maker = ctypes.CFUNCTYPE(ctypes.c_void_p)(_make_world)
    set_world = _native().tutti_jax_set_world
    set_world.argtypes, set_world.restype = [type(maker)], None
    _held.append(maker)
    set_world(maker)
    os.environ["MPITRAMPOLINE_LIB"] = library()
    os.environ["JAX_CPU_COLLECTIVES_IMPLEMENTATION"] = "mpi"
    if is_jax_there:  # which has read the variable already
        import jax  # pylint: disable=import-outside-toplevel

        jax.config.update("jax_cpu_collectives_implementation", "mpi")
    _is_installed = True


def _check_variables():
    """Errors: RuntimeError for one that names something else: who set it may rely on it."""
    asked = os.environ.get("JAX_CPU_COLLECTIVES_IMPLEMENTATION")
    if asked not in (None, "", "mpi"):
        raise RuntimeError(
            f"tutti.jax.install: JAX_CPU_COLLECTIVES_IMPLEMENTATION={asked} asks for other collectives; unset it to use tutti"
        )
    asked = os.environ.get("MPITRAMPOLINE_LIB")
    if asked and os.path.realpath(asked) != os.path.realpath(library()):
        raise RuntimeError(f"tutti.jax.install: MPITRAMPOLINE_LIB={asked} asks for another library; unset it, or set it to {library()}")


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


# -- operations -------------------------------------------------------------------------------------------------------

_COLLECTIVES = {"allreduce": 0, "broadcast": 1, "allgather": 3, "reduce_scatter": 4, "alltoall": 5}  # tutti_collective_t
_OPS = {"sum": 0, "prod": 1, "min": 2, "max": 3, "avg": 4}  # tutti_op_t
_lock = threading.Lock()  # of the following
_queues = {}  # group -> its Queue


class Queue:
    """The named tensors of one group, as compiled computations refer to them. Operations take one in place of a group.

    tensors: a tutti.TensorQueue of the group that others use, too. None: a new one.
    """

    def __init__(self, group, tensors=None):
        _register()
        add = _native().tutti_jax_add_queue
        add.argtypes, add.restype = [ctypes.c_void_p], ctypes.c_int64
        self.group = group
        self._tensors = tutti.TensorQueue(group) if tensors is None else tensors
        self.number = add(self._tensors.c_handle)
        self._count = 0

    @classmethod
    def of(cls, group):
        group = tutti.world() if group is None else group
        if isinstance(group, cls):
            return group
        with _lock:
            if group not in _queues:
                _queues[group] = cls(group)
            return _queues[group]

    def replace(self, group, tensors):
        """Another group from now on, also for what is compiled."""
        replace = _native().tutti_jax_replace_queue
        replace.argtypes, replace.restype = [ctypes.c_int64, ctypes.c_void_p], None
        _held.append(self._tensors)  # a computation may be submitting to it
        self.group, self._tensors = group, tensors
        replace(self.number, tensors.c_handle)

    def next_name(self, collective):
        with _lock:
            self._count += 1
            return f"{collective}.{self._count}"


@functools.cache
def _register():
    import jax.ffi  # pylint: disable=import-outside-toplevel  # after install()

    jax.ffi.register_ffi_target("tutti_jax_operation", jax.ffi.pycapsule(_native().tutti_jax_operation), platform="cpu")


def _call_all(collective, arrays, rows, queue, name, op="sum", root=0):
    """One operation for all arrays; `rows` is the first dimension of each result, None: all is as in the array."""
    import jax  # pylint: disable=import-outside-toplevel
    import numpy  # pylint: disable=import-outside-toplevel

    results = [jax.ShapeDtypeStruct(x.shape if rows is None else (rows, *x.shape[1:]), x.dtype) for x in arrays]
    method = "broadcast_all" if rows is None else "sequential"
    return jax.ffi.ffi_call("tutti_jax_operation", results, has_side_effect=True, vmap_method=method)(
        *arrays,
        collective=numpy.int64(_COLLECTIVES[collective]),
        op=numpy.int64(_OPS[op]),
        root=numpy.int64(root),
        name=name,
        queue=numpy.int64(queue.number),
    )


def _call(collective, x, *arguments, **options):
    return _call_all(collective, [x], *arguments, **options)[0]


def _differentiable(function, x, name, backward):
    """function(x, name), whose cotangent is backward(cotangent, a name of its own)."""
    import jax  # pylint: disable=import-outside-toplevel

    wrapped = jax.custom_vjp(lambda value: function(value, name))
    wrapped.defvjp(lambda value: (function(value, name), None), lambda _, cotangent: (backward(cotangent, name + ".grad"),))
    return wrapped(x)


def _prepared(collective, x, group, name):
    import jax.numpy as jnp  # pylint: disable=import-outside-toplevel

    queue = Queue.of(group)
    return jnp.asarray(x), queue, name or queue.next_name(collective)


def _rows_of_parts(collective, x, queue):
    size = queue.group.size
    if x.ndim == 0 or x.shape[0] % size:
        raise ValueError(f"tutti.jax.{collective}: the first dimension of {x.shape} cannot be divided by {size} ranks")
    return x.shape[0] // size


def allreduce(x, op="sum", *, group=None, name=None):
    """The sum, product, minimum, maximum or average ("avg") over the ranks of `group` (None: the world). x: equal shapes on all ranks.

    "sum" and "avg" have a derivative: the same operation on the cotangents, which is that of the sum of all ranks' losses.
    """
    return grouped_allreduce([x], op, group=group, name=name)[0]


def grouped_allreduce(arrays, op="sum", *, group=None, name=None):
    """As allreduce() of each array of a list, communicated together or not at all. Returns a list."""
    import jax.numpy as jnp  # pylint: disable=import-outside-toplevel

    if op not in _OPS:
        raise ValueError(f"tutti.jax.allreduce: op: expected one of {', '.join(_OPS)}, not {op!r}")
    arrays = [jnp.asarray(x) for x in arrays]
    if not arrays:
        return []
    queue = Queue.of(group)
    name = name or queue.next_name("allreduce")

    def reduce(values, its_name):
        return list(_call_all("allreduce", values, None, queue, its_name, op=op))

    return _differentiable(reduce, arrays, name, reduce) if op in ("sum", "avg") else reduce(arrays, name)


def allgather(x, *, group=None, name=None):
    """The arrays of all ranks, one after the other along the first dimension. x: equal shapes. Derivative: reduce_scatter, "sum"."""
    x, queue, name = _prepared("allgather", x, group, name)
    if x.ndim == 0:
        x = x[None]
    rows = x.shape[0]
    return _differentiable(
        lambda value, its_name: _call("allgather", value, rows * queue.group.size, queue, its_name),
        x,
        name,
        lambda value, its_name: _call("reduce_scatter", value, rows, queue, its_name),
    )


def reduce_scatter(x, op="sum", *, group=None, name=None):
    """This rank's part, along the first dimension, of the "sum" over the ranks ("min", "max", "prod": without a derivative).

    The first dimension is divided by the number of ranks. Derivative: allgather.
    """
    x, queue, name = _prepared("reduce_scatter", x, group, name)
    rows = _rows_of_parts("reduce_scatter", x, queue)
    if op not in _OPS or op == "avg":
        raise ValueError(f"tutti.jax.reduce_scatter: op: expected sum, prod, min or max, not {op!r}")

    def scatter(value, its_name):
        return _call("reduce_scatter", value, rows, queue, its_name, op=op)

    if op != "sum":
        return scatter(x, name)
    return _differentiable(scatter, x, name, lambda value, its_name: _call("allgather", value, x.shape[0], queue, its_name))


def alltoall(x, *, group=None, name=None):
    """Part r of x, along the first dimension, goes to rank r; the result has those from all ranks. Derivative: alltoall."""
    x, queue, name = _prepared("alltoall", x, group, name)
    _rows_of_parts("alltoall", x, queue)

    def exchange(value, its_name):
        return _call("alltoall", value, x.shape[0], queue, its_name)

    return _differentiable(exchange, x, name, exchange)


def broadcast(x, root=0, *, group=None, name=None):
    """The root's x on all ranks. Derivative: the sum of the cotangents at the root, zero elsewhere."""
    import jax.numpy as jnp  # pylint: disable=import-outside-toplevel

    x, queue, name = _prepared("broadcast", x, group, name)

    def back(value, its_name):
        total = _call("allreduce", value, None, queue, its_name)
        return total if queue.group.rank == root else jnp.zeros_like(total)  # not 0 * total, which may be NaN

    return _differentiable(lambda value, its_name: _call("broadcast", value, None, queue, its_name, root=root), x, name, back)


if __name__ == "__main__":
    print(library())
