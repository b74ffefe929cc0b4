"""A rank of the tests of tutti.horovod on numpy's arrays. usage: numpy_program.py PART [FILE]"""

import json
import os
import sys
import tempfile
import time

import numpy
from program_checks import expect_error, run_as_horovod

import tutti
import tutti.horovod as hvd
from tutti.horovod import elastic, exceptions, util


def expect(actual, expected, what):
    assert actual.dtype == expected.dtype and numpy.array_equal(
        actual, expected
    ), f"rank {hvd.rank()}: {what}: {actual}, expected {expected}"


def of_rank(rank, dtype="float32", shape=(3, 2)):
    return (numpy.arange(numpy.prod(shape)).reshape(shape) + rank).astype(dtype)


def everybody(**options):
    return [of_rank(rank, **options) for rank in range(hvd.size())]


def check_reductions():
    for dtype in ("float32", "float64", "float16", "int8", "uint8", "int32", "int64"):
        parts = numpy.stack([part.astype("float64") for part in everybody(dtype=dtype)])
        mine = of_rank(hvd.rank(), dtype)
        for op, expected in (
            (hvd.Sum, parts.sum(0)),
            (hvd.Min, parts.min(0)),
            (hvd.Max, parts.max(0)),
            (hvd.Product, parts.prod(0)),
        ):
            if op == hvd.Product and dtype in ("int8", "uint8"):
                continue  # beyond their range
            expect(hvd.allreduce(mine, op=op), expected.astype(dtype), f"{op.name} of {dtype}")
        expect(mine, of_rank(hvd.rank(), dtype), "the input")
    twice = hvd.allreduce(of_rank(hvd.rank()), op=hvd.Sum, prescale_factor=2.0, postscale_factor=0.5)
    expect(twice, sum(everybody()), "factors")
    whole = hvd.allreduce(of_rank(hvd.rank(), "int32"), op=hvd.Sum, prescale_factor=0.5, postscale_factor=3.0)
    expect(whole, (sum((part * 0.5).astype("int32") for part in everybody(dtype="int32")) * 3).astype("int32"), "factors of integers")
    mean = numpy.mean(everybody(), axis=0, dtype="float32")
    assert numpy.allclose(hvd.allreduce(of_rank(hvd.rank())), mean)
    assert numpy.allclose(hvd.allreduce(of_rank(hvd.rank()), compression=hvd.Compression.fp16), mean, atol=1e-2)
    in_place = of_rank(hvd.rank())
    assert hvd.allreduce_(in_place, op=hvd.Sum) is in_place
    expect(in_place, sum(everybody()), "in place")
    scalar = hvd.allreduce(numpy.float32(hvd.rank()), op=hvd.Sum)
    assert scalar.shape == () and scalar == sum(range(hvd.size()))


def check_groups():
    first, second = hvd.grouped_allreduce([of_rank(hvd.rank()), of_rank(hvd.rank(), "int64")], op=hvd.Sum, name="pair")
    expect(first, sum(everybody()), "first of a group")
    expect(second, sum(everybody(dtype="int64")), "second of a group")
    gathered = hvd.grouped_allgather([of_rank(hvd.rank()), of_rank(hvd.rank(), shape=(hvd.rank() + 1, 2))])
    expect(gathered[0], numpy.concatenate(everybody()), "gathered")
    expect(gathered[1], numpy.concatenate([of_rank(r, shape=(r + 1, 2)) for r in range(hvd.size())]), "gathered unevenly")
    rows = 2 * hvd.size() + 1  # the first rank gets one more
    whole = sum(everybody(shape=(rows, 2)))
    first_row = 0 if hvd.rank() == 0 else 2 * hvd.rank() + 1
    [mine] = hvd.grouped_reducescatter([of_rank(hvd.rank(), shape=(rows, 2))], op=hvd.Sum)
    expect(mine, whole[first_row : first_row + (3 if hvd.rank() == 0 else 2)], "reducescatter")


def check_movement():
    root = hvd.size() - 1
    expect(hvd.broadcast(of_rank(hvd.rank()), root), of_rank(root), "broadcast")
    flags = numpy.array([hvd.rank() == root, True])
    hvd.broadcast_(flags, root)
    assert flags.tolist() == [True, True]
    splits = [(hvd.rank() + other) % 3 for other in range(hvd.size())]
    own = of_rank(100 * hvd.rank(), "int64", (sum(splits), 2))
    output, received = hvd.alltoall(own, splits)
    assert received.tolist() == [(other + hvd.rank()) % 3 for other in range(hvd.size())]
    parts = []
    for other in range(hvd.size()):
        counts = [(other + to) % 3 for to in range(hvd.size())]
        first = sum(counts[: hvd.rank()])
        parts.append(of_rank(100 * other, "int64", (sum(counts), 2))[first : first + counts[hvd.rank()]])
    expect(output, numpy.concatenate(parts), "alltoall")
    some, received = hvd.alltoall(numpy.arange(hvd.size() + 3), [1] * hvd.size())
    expect(some, numpy.full(hvd.size(), hvd.rank()), "alltoall of fewer rows than there are")
    even = hvd.alltoall(numpy.arange(hvd.size()) + 10 * hvd.rank())
    assert even.tolist() == [10 * other + hvd.rank() for other in range(hvd.size())]
    assert hvd.broadcast_object({"from": hvd.rank()}, root)["from"] == root
    assert hvd.allgather_object("x" * (hvd.rank() + 1)) == ["x" * (rank + 1) for rank in range(hvd.size())]
    hvd.barrier()


def check_handles():
    names = [f"tensor {i}" for i in range(20)]
    order = names if hvd.rank() % 2 == 0 else names[::-1]  # ranks are matched by name
    handles = {name: hvd.allreduce_async(numpy.full(10, float(names.index(name))), name=name) for name in order}
    for name in names:
        expect(hvd.synchronize(handles[name]), numpy.full(10, float(names.index(name))), name)
    assert hvd.synchronize(handles[names[0]]) is None  # waited for already
    expect_error(ValueError, ["cleared"], hvd.poll, handles[names[0]])
    handle = hvd.allreduce_async(numpy.ones(3))
    while not hvd.poll(handle):
        pass
    expect(hvd.synchronize(handle), numpy.ones(3), "polled")


def check_errors():
    expect_error(ValueError, ["average"], hvd.allreduce, numpy.ones(1), average=True, op=hvd.Sum)
    expect_error(ValueError, ["bool"], hvd.allreduce, numpy.ones(1, bool))
    expect_error(ValueError, ["row after row"], hvd.allreduce_, numpy.ones((2, 3)).T)
    expect_error(ValueError, ["root rank 99"], hvd.broadcast, numpy.ones(1), 99)
    if hvd.size() == 1:
        return
    shape = 17 + hvd.rank()
    expect_error(hvd.HorovodInternalError, ["shape", "rank 0", "rank 1"], hvd.allreduce, numpy.ones(shape), name="unlike")
    first = hvd.allreduce_async(numpy.ones(2), name="late") if hvd.rank() == 0 else None
    if first is not None:
        expect_error(ValueError, ["late"], hvd.allreduce_async, numpy.ones(2), name="late")
    hvd.barrier()
    expect(hvd.synchronize(first) if first is not None else hvd.allreduce(numpy.ones(2), name="late"), numpy.ones(2), "late")


def check_process_sets():
    if hvd.size() < 4:
        expect_error(ValueError, ["duplicate"], hvd.add_process_set, range(hvd.size()))
        return
    even = hvd.add_process_set(list(range(0, hvd.size(), 2)))
    odd = hvd.add_process_set(hvd.ProcessSet(range(1, hvd.size(), 2)))
    own = even if even.included() else odd
    expect(hvd.allreduce(numpy.array([hvd.rank()]), op=hvd.Sum, process_set=own), numpy.array([sum(own.ranks)]), "own set")
    last = own.ranks[-1]
    expect(hvd.broadcast(numpy.array([hvd.rank()]), last, process_set=own), numpy.array([last]), "root by its rank in the job")
    other = odd if even.included() else even
    expect_error(ValueError, ["not a member"], hvd.allreduce, numpy.ones(1), process_set=other)
    expect_error(ValueError, ["duplicate"], hvd.add_process_set, list(even.ranks))
    assert hvd.get_process_set_ids_and_ranks() == {0: list(range(hvd.size())), 1: even.ranks, 2: odd.ranks}
    assert hvd.remove_process_set(odd) and not hvd.remove_process_set(odd)
    assert odd.process_set_id is None and not hvd.remove_process_set(hvd.global_process_set)
    third = hvd.add_process_set([0])
    assert third.process_set_id == 2 and third.size() == 1 and third.rank() == (0 if hvd.rank() == 0 else -1)
    again = hvd.ProcessSet([0])
    hvd.init(process_sets=[again])
    assert again.process_set_id == 2 and third.process_set_id is None
    expect_error(ValueError, ["add_process_set"], hvd.init, process_sets=[[1]])
    hvd.shutdown()
    expect_error(ValueError, ["duplicate"], hvd.init, process_sets=[hvd.ProcessSet([0]), hvd.ProcessSet([0])])
    assert not hvd.is_initialized()
    hvd.init(process_sets=[again])
    assert again.process_set_id == 1


def check_join():
    last = hvd.size() - 1
    for step in range(hvd.rank() + 1):
        ranks_left = hvd.size() - step
        expect(hvd.allreduce(numpy.ones(3), op=hvd.Sum, name=f"step {step}"), numpy.full(3, float(ranks_left)), f"step {step}")
        if hvd.size() > 1:
            hvd.barrier(hvd.global_process_set) if step == last else None
    assert hvd.join() == last
    expect(hvd.allreduce(numpy.ones(1), op=hvd.Sum), numpy.full(1, float(hvd.size())), "after join")


def check_adasum():
    """Against the formula of two, applied to pairs of growing distance."""
    size = hvd.size()
    if size & (size - 1):
        expect_error(NotImplementedError, ["power of 2"], hvd.allreduce, numpy.ones(3), op=hvd.Adasum)
        return
    vectors = [numpy.random.default_rng(rank).standard_normal(1001) for rank in range(size)]
    expected = list(vectors)
    while len(expected) > 1:
        pairs = zip(expected[::2], expected[1::2])
        expected = [a * (1 - a @ b / (2 * (a @ a))) + b * (1 - a @ b / (2 * (b @ b))) for a, b in pairs]
    for dtype, tolerance in (("float64", 1e-12), ("float32", 1e-5), ("float16", 1e-2)):
        got = hvd.allreduce(vectors[hvd.rank()].astype(dtype), op=hvd.Adasum)
        assert got.dtype == dtype and numpy.allclose(got, expected[0], rtol=tolerance, atol=tolerance), dtype
        assert len({part.tobytes() for part in hvd.allgather_object(got)}) == 1
    order = range(8) if hvd.rank() % 2 == 0 else range(7, -1, -1)
    handles = {i: hvd.allreduce_async(numpy.full(4, 1.0 + i), op=hvd.Adasum, name=f"parallel {i}") for i in order}
    for i, handle in handles.items():
        assert numpy.allclose(hvd.synchronize(handle), 1.0 + i)  # equal vectors are averaged


def check_again():
    """init() after shutdown(), and calls without either."""
    size = hvd.size()
    for _ in range(3):
        hvd.shutdown()
        hvd.shutdown()
        assert not hvd.is_initialized()
        expect_error(ValueError, ["hvd.init()"], hvd.rank)
        hvd.init()
        hvd.init()
        assert hvd.size() == size
        expect(hvd.allreduce(numpy.ones(2), op=hvd.Sum), numpy.full(2, float(size)), "again")


def check_basics():
    assert (hvd.rank(), hvd.size()) == (tutti.rank(), tutti.size())
    assert (hvd.local_rank(), hvd.local_size(), hvd.cross_rank(), hvd.cross_size()) == (hvd.rank(), hvd.size(), 0, 1)
    assert hvd.is_homogeneous() and hvd.gloo_built() and not hvd.mpi_built() and hvd.mpi_threads_supported()


def check_timeline():
    """Rank 0's file has Horovod's phases of each tensor, and is complete after stop_timeline()."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "timeline.json")
        hvd.start_timeline(path, mark_cycles=True)
        hvd.barrier()
        for _ in range(3):
            hvd.allreduce(numpy.ones(4), name="watched")
        hvd.stop_timeline()
        hvd.barrier()
        assert os.path.exists(path) == (hvd.rank() == 0)
        if hvd.rank() == 0:
            with open(path, encoding="utf-8") as file:
                events = json.load(file)
            tensors = {event["pid"]: event["args"].get("name") for event in events if event.get("name") == "process_name"}
            phases = {event["name"] for event in events if tensors.get(event.get("pid")) == "allreduce.watched" and event.get("ph") == "B"}
            assert {"NEGOTIATE_ALLREDUCE", "ALLREDUCE"} <= phases, phases


def check_helpers():
    """Those of horovod.common that scripts import."""
    is_later = util.is_version_greater_equal_than
    assert is_later("2.10.1", "2.9.0") and is_later("2.0", "2.0.0") and not is_later("1.13.1+cpu", "2.0.0")
    assert util._numbers("2.10.0+cpu") == [2, 10] and util._numbers("2.9.1") < util._numbers("2.10.0")
    expect_error(ValueError, ["strings"], is_later, 2.1, "2.0.0")
    expect_error(ValueError, ["major.minor.patch"], is_later, "2.1.0", "2.0")
    expect_error(ImportError, ["mxnet"], util.check_extension, "horovod.mxnet", "HOROVOD_WITH_MXNET", __file__, "mpi_lib")
    error = exceptions.HorovodVersionMismatchError("torch", "2.1", "2.0")
    assert isinstance(error, ImportError) and str(error) == exceptions.get_version_mismatch_message("torch", "2.1", "2.0")


def check_run_fn():
    """The function starts again from the last commit, after reset()."""
    state = elastic.ObjectState(batch=hvd.rank())
    seen = []

    def train(state):
        seen.append(state.batch)
        state.batch += 10
        if len(seen) == 1:
            raise hvd.HorovodInternalError("a rank is lost")
        if len(seen) == 3:
            raise exceptions.HostsUpdatedInterrupt(skip_sync=True)
        return "done"

    assert elastic.run_fn(train, reset=lambda: seen.append("reset"))(state) == "done"
    assert seen == [0, "reset", 0, "reset", 10], seen
    for update, skip_sync in (elastic.HostUpdateResult.removed, True), (elastic.HostUpdateResult.mixed, False):
        state.on_hosts_updated(0, update)
        try:
            state.commit()
        except exceptions.HostsUpdatedInterrupt as interrupt:
            assert interrupt.skip_sync == skip_sync
        else:
            raise AssertionError("commit() did not interrupt")
    state.commit()


def train_while_hosts_change(file, *lists):
    """Two ranks; rank 0 makes the discovery script list another slot, and then two again. lists: what it prints then, lines ended by ;."""
    state = elastic.ObjectState(sizes=[hvd.size()], steps=0)

    @elastic.run
    def train(state):
        nodes = hvd.allgather_object(os.environ.get("TUTTI_NODE_ID"))
        assert hvd.local_rank() == nodes[: hvd.rank()].count(nodes[hvd.rank()]) and hvd.local_size() == nodes.count(nodes[hvd.rank()])
        if state.sizes[-1] != hvd.size():
            state.sizes.append(hvd.size())
        if hvd.rank() == 0 and state.sizes != [2, 3, 2]:
            with open(file + ".new", "w", encoding="utf-8") as hosts:
                hosts.write(lists[len(state.sizes) - 1].replace(";", "\n"))
            os.replace(file + ".new", file)
        while state.sizes != [2, 3, 2]:
            time.sleep(0.01)
            state.steps += 1
            expect(hvd.allreduce(numpy.array([state.steps]), name="steps"), numpy.array([state.steps]), "number of steps")
            state.commit()

    train(state)
    assert state.sizes == [2, 3, 2]
    # One write: output is unbuffered, and the ranks share it.
    sys.stdout.write(f"{hvd.rank()} ended in a job of {hvd.size()}\n")


def check_alias_of_runner():
    program = (
        "import os, horovod.runner, tutti.horovod\n"
        "from horovod.runner.common.util.env import get_env_rank_and_size\n"
        "from horovod.runner.util.threads import in_thread\n"
        "assert horovod.runner.run is tutti.horovod.run\n"
        "seen = []\n"
        "in_thread(seen.append, (1,)).join()\n"
        "in_thread(lambda: 1 / 0, silent=True).join()\n"
        "assert seen == [1]\n"
        "assert get_env_rank_and_size() == (0, 1)\n"
        "os.environ.update(PMI_RANK='2', PMI_SIZE='3')\n"
        "assert get_env_rank_and_size() == (2, 3)\n"
        "os.environ['OMPI_COMM_WORLD_SIZE'] = '3'\n"
        "try:\n"
        "    get_env_rank_and_size()\n"
        "except RuntimeError as error:\n"
        "    assert 'OMPI_COMM_WORLD_RANK' in str(error)\n"
        "else:\n"
        "    raise AssertionError('half of a pair')\n"
    )
    if hvd.rank() == 0:
        run_as_horovod(program)


PARTS = {
    "collectives": [check_basics, check_reductions, check_groups, check_movement, check_handles],
    "sets": [check_errors, check_process_sets, check_join, check_adasum],
    "again": [check_helpers, check_run_fn, check_alias_of_runner, check_timeline, check_again],
}

if __name__ == "__main__":
    hvd.init()
    if sys.argv[1] == "hosts":
        train_while_hosts_change(*sys.argv[2:])
    for check in PARTS.get(sys.argv[1], []):
        check()
        hvd.barrier()
