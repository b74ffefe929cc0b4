"""A rank of the tests of tutti.jax: multi-process JAX on CPUs, whose collectives tutti carries.

Knows JAX's public interface. usage: rank_program.py PART RANK SIZE PORT
"""

import sys
import unittest.mock

import tutti
import tutti.jax

PART, RANK, SIZE, PORT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
tutti.jax.install()

import jax  # pylint: disable=wrong-import-position
import jax.numpy as jnp  # pylint: disable=wrong-import-position
import numpy as np  # pylint: disable=wrong-import-position
from jax import lax  # pylint: disable=wrong-import-position
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P  # pylint: disable=wrong-import-position

jax.distributed.initialize(f"127.0.0.1:{PORT}", SIZE, RANK)
MESH = Mesh(np.array(jax.devices()), ("d",))


def spread(part, mesh=MESH, spec=P("d")):
    """A global array whose part on this rank is given."""
    return jax.make_array_from_process_local_data(NamedSharding(mesh, spec), part)


def mine(array):
    return np.asarray(array.addressable_shards[0].data)


def on_ranks(function, out=P("d"), mesh=MESH, spec=P("d")):
    return jax.jit(jax.shard_map(function, mesh=mesh, in_specs=spec, out_specs=out, check_vma=False))


def parts(dtype="float32", length=12):
    """That of each rank."""
    return [(np.arange(length) % 5 + rank + 1).astype(dtype) for rank in range(SIZE)]


def expect(got, expected, what):
    np.testing.assert_allclose(got, expected, rtol=1e-5, err_msg=f"rank {RANK}: {what}")


def check_collectives(dtype, length):
    all_parts = parts(dtype, length)
    stacked = np.stack(all_parts)
    array = spread(all_parts[RANK])

    def run(function, out=P("d")):
        return mine(on_ranks(function, out)(array))

    what = f"{dtype} x {length}"
    expect(run(lambda x: lax.psum(x, "d")), stacked.sum(0, dtype=dtype), "psum " + what)
    if np.dtype(dtype).kind != "c":
        expect(run(lambda x: lax.pmax(x, "d")), stacked.max(0), "pmax " + what)
        expect(run(lambda x: lax.pmin(x, "d")), stacked.min(0), "pmin " + what)
    expect(run(lambda x: lax.all_gather(x, "d", tiled=True), P()), stacked.ravel(), "all_gather " + what)
    if length % SIZE == 0:
        block = slice(RANK * length // SIZE, (RANK + 1) * length // SIZE)
        expect(run(lambda x: lax.psum_scatter(x, "d", tiled=True)), stacked.sum(0, dtype=dtype)[block], "psum_scatter " + what)
        blocks = np.concatenate([part[block] for part in all_parts])
        expect(run(lambda x: lax.all_to_all(x, "d", 0, 0, tiled=True)), blocks, "all_to_all " + what)
    ring = [(rank, (rank + 1) % SIZE) for rank in range(SIZE)]
    expect(run(lambda x: lax.ppermute(x, "d", ring)), all_parts[(RANK - 1) % SIZE], "ppermute " + what)


def test_collectives():
    assert tutti.size() == SIZE and tutti.rank() == RANK, "the ranks met through JAX's coordinator"
    tutti.jax.install()  # does nothing
    with unittest.mock.patch.object(tutti.jax, "_is_installed", False):
        try:
            tutti.jax.install()
            raise AssertionError("install() after JAX has made its devices")
        except RuntimeError as error:
            assert "JAX has made its devices before" in str(error), error
    for dtype in ("float32", "int32", "uint8", "complex64"):
        check_collectives(dtype, 12)
    check_collectives("float32", 12 * 30000)
    small = on_ranks(lambda x: lax.psum(x.astype(jnp.bfloat16), "d"))(spread(parts()[RANK]))
    expect(mine(small).astype("float32"), np.stack(parts()).sum(0), "psum of bfloat16")


def test_gradient():
    """The gradient of a loss over rows that are spread, as one process computes it: by XLA's partitioner, and by shard_map."""
    rows = np.random.default_rng(1).normal(size=(SIZE * 6, 4)).astype("float32")
    weights = np.arange(1, 5, dtype="float32")
    expected = 2 * rows.T @ (rows @ weights) / len(rows)
    spread_rows = spread(rows[RANK * 6 : (RANK + 1) * 6])
    everywhere = jax.device_put(weights, NamedSharding(MESH, P()))
    by_partitioner = jax.jit(jax.grad(lambda w, x: jnp.mean((x @ w) ** 2)))
    expect(mine(by_partitioner(everywhere, spread_rows)), expected, "gradient by the partitioner")

    def loss(w, x):
        return lax.pmean(jnp.mean((x @ w) ** 2), "d")

    sharded = jax.shard_map(loss, mesh=MESH, in_specs=(P(), P("d")), out_specs=P())
    expect(mine(jax.jit(jax.grad(sharded))(everywhere, spread_rows)), expected, "gradient through shard_map")


def test_mesh():
    """Two axes, each with communicators of its own."""
    columns = 2
    mesh = Mesh(np.array(jax.devices()).reshape(-1, columns), ("x", "y"))
    all_parts = parts()
    array = spread(all_parts[RANK][None], mesh, P(("x", "y")))
    row = [rank for rank in range(SIZE) if rank // columns == RANK // columns]
    column = [rank for rank in range(SIZE) if rank % columns == RANK % columns]
    for axis, members in (("y", row), ("x", column)):
        got = on_ranks(lambda x, axis=axis: lax.psum(x, axis), P(("x", "y")), mesh, P(("x", "y")))(array)
        expect(mine(got)[0], np.sum([all_parts[rank] for rank in members], 0), "psum over " + axis)
    both = on_ranks(lambda x: lax.psum(lax.psum(x, "x") * 2, "y"), P(("x", "y")), mesh, P(("x", "y")))(array)
    expect(mine(both)[0], 2 * np.sum(all_parts, 0), "psum over both")


def check_operation(operation, reference, back):
    """Its result and the gradient of a weighted sum of it, eager and compiled. The loss is that of all ranks together."""
    stacked = np.stack(parts(length=12 * SIZE))
    expected = reference(stacked)
    weights = [np.arange(expected.size, dtype="float32") + rank for rank in range(SIZE)]
    for wrap in (lambda function: function, jax.jit):
        expect(wrap(operation)(stacked[RANK]), expected, "operation")
        got = wrap(jax.grad(lambda x: jnp.sum(operation(x) * weights[RANK])))(stacked[RANK])
        expect(got, back(np.stack(weights)), "gradient")


def test_operations():
    """Those of tutti.jax, against a reference worked out here."""
    part = slice(12 * RANK, 12 * (RANK + 1))
    check_operation(tutti.jax.allreduce, lambda all_: all_.sum(0), lambda weights: weights.sum(0))
    check_operation(lambda x: tutti.jax.allreduce(x, "avg"), lambda all_: all_.mean(0), lambda weights: weights.mean(0))
    check_operation(tutti.jax.allgather, lambda all_: all_.ravel(), lambda weights: weights.sum(0).reshape(SIZE, -1)[RANK])
    check_operation(tutti.jax.reduce_scatter, lambda all_: all_.sum(0)[part], lambda weights: weights.ravel())
    check_operation(tutti.jax.alltoall, lambda all_: all_[:, part].ravel(), lambda weights: weights[:, part].ravel())
    check_operation(lambda x: tutti.jax.broadcast(x, 1), lambda all_: all_[1], lambda weights: weights.sum(0) * (RANK == 1))
    scaled = jax.grad(lambda x: tutti.jax.broadcast(x, 1)[0] * jnp.float32(np.inf))(jnp.ones(1))
    expect(scaled, [np.inf if RANK == 1 else 0], "gradient of a broadcast that is infinite")
    expect(tutti.jax.allreduce(jnp.float32(RANK), "max"), SIZE - 1, "of a scalar")
    pair = [jnp.full((2, 3), RANK + 1.0), jnp.arange(5) + RANK]
    for wrap in (lambda function: function, jax.jit):
        floats, numbers = wrap(tutti.jax.grouped_allreduce)(pair)
        expect(floats, np.full((2, 3), SIZE * (SIZE + 1) / 2), "the first of a group")
        expect(numbers, SIZE * np.arange(5) + sum(range(SIZE)), "the second of a group")
    both = jax.jit(jax.grad(lambda x: sum(part.sum() for part in tutti.jax.grouped_allreduce([x, x * 2], "avg"))))
    expect(both(jnp.ones(3) * RANK), np.full(3, 3), "gradient of a group")
    expect(jax.vmap(tutti.jax.allreduce)(jnp.ones((3, 2))), np.full((3, 2), SIZE), "vmap")
    for dtype in ("bfloat16", "float16", "int8", "uint32", "complex64"):
        got = tutti.jax.allreduce(jnp.arange(5).astype(dtype))
        assert got.dtype == dtype
        expect(got.astype("complex64"), SIZE * np.arange(5), dtype)


def test_order():
    """Independent operations of one computation, which XLA begins in an order of its own, and some that the ranks name in another."""
    names = [f"named{i}" for i in range(8)]
    mine_first = names[RANK:] + names[:RANK]

    @jax.jit
    def compute(x):
        values = {name: tutti.jax.allreduce(x + names.index(name), name=name) for name in mine_first}
        return [values[name] for name in names]

    for _ in range(20):
        for i, value in enumerate(compute(jnp.full(1000, float(RANK)))):
            expect(value, np.full(1000, sum(range(SIZE)) + SIZE * i), "of different orders")

    def body(carry, _):
        return tutti.jax.allreduce(carry, "avg") + 1, None

    expect(
        jax.jit(lambda x: jax.lax.scan(body, x, None, length=5)[0])(jnp.full(3, float(RANK))),
        np.full(3, sum(range(SIZE)) / SIZE + 5),
        "in a loop",
    )


def test_operation_errors():
    for wrong, text in (
        (lambda: tutti.jax.allreduce(jnp.ones(2), "mean"), "expected one of sum, prod"),
        (lambda: tutti.jax.alltoall(jnp.ones(SIZE + 1)), "cannot be divided by"),
        (lambda: tutti.jax.reduce_scatter(jnp.ones(SIZE), "avg"), "expected sum, prod, min or max"),
    ):
        try:
            wrong()
        except ValueError as error:
            assert text in str(error), error
        else:
            raise AssertionError("no error: " + text)
    for arrays, text in (
        ([jnp.ones(2 + RANK)], 'ranks submitted tensor "wrong" with different shape'),
        ([jnp.ones(2), jnp.ones(2 + RANK)], "with different shape"),
        ([jnp.ones(2), jnp.ones(2, "float8_e5m2")], "arrays of this dtype are not communicated"),
    ):
        try:
            jax.block_until_ready(tutti.jax.grouped_allreduce(arrays, name="wrong"))
        except Exception as error:  # pylint: disable=broad-exception-caught  # its class is XLA's
            assert text in str(error), error
        else:
            raise AssertionError("no error: " + text)
    expect(tutti.jax.allreduce(jnp.ones(2)), np.full(2, SIZE), "after an error")


if __name__ == "__main__":
    for part in PART.split("+"):
        globals()["test_" + part]()
    print(f"rank {RANK}: fine", flush=True)
