"""A rank of the tests of tutti.torch: what torch.distributed promises, with the backend "tutti".

Knows torch's interface only, of 1.13 and 2. usage: rank_program.py PART [RANK SIZE STORE_FILE]

Without the three it is a rank of torchrun's.
"""
import datetime
import os
import re
import sys

import torch
import torch.distributed as dist

import tutti.torch

IS_TORCH_2 = int(torch.__version__.split(".", maxsplit=1)[0]) >= 2
NUMBERS = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
RANK = SIZE = 0


def seconds(number):
    return datetime.timedelta(seconds=number)


def join(store):
    dist.init_process_group("tutti", init_method="file://" + store, rank=RANK, world_size=SIZE, timeout=seconds(120))


def cpu_backend(group=None):
    group = dist.group.WORLD if group is None else group
    return group._get_backend(torch.device("cpu")) if IS_TORCH_2 else group


def expect(actual, expected, what):
    assert actual.dtype == expected.dtype and torch.equal(actual, expected), f"rank {RANK}: {what}: {actual}, expected {expected}"


def expect_error(kind, words, function):
    try:
        function()
    except kind as error:
        assert all(word in str(error) for word in words), f"{error}: expected all of {words}"
    else:
        raise AssertionError(f"no error with {words}")


def every_rank(make):
    return [make(rank) for rank in range(SIZE)]


def strided(tensor):
    """The same values, with other strides."""
    wide = torch.zeros(*tensor.shape, 2, dtype=tensor.dtype)
    wide[..., 1] = tensor
    return wide[..., 1]


# -- collectives --------------------------------------------------------------------------------------------


def check_dtypes():
    for dtype in NUMBERS:
        mine = torch.arange(5).to(dtype) + RANK
        all_of_them = torch.stack(every_rank(lambda rank, d=dtype: torch.arange(5).to(d) + rank))
        for op, reduce in ((dist.ReduceOp.SUM, torch.sum), (dist.ReduceOp.MAX, torch.amax), (dist.ReduceOp.MIN, torch.amin)):
            got = mine.clone()
            dist.all_reduce(got, op)
            expect(got, reduce(all_of_them.double(), dim=0).to(dtype), f"all_reduce {op} {dtype}")
        got = mine.clone()
        dist.all_reduce(got, dist.ReduceOp.PRODUCT)
        expect(got, torch.prod(all_of_them.double(), dim=0).to(dtype), f"all_reduce product {dtype}")
    average = torch.tensor([float(RANK)])
    dist.all_reduce(average, dist.ReduceOp.AVG)
    expect(average, torch.tensor([(SIZE - 1) / 2]), "average")
    bits = torch.tensor([1 << RANK])
    dist.all_reduce(bits, dist.ReduceOp.BOR)
    expect(bits, torch.tensor([(1 << SIZE) - 1]), "bitwise or")
    flag = torch.tensor([RANK == 0, False])
    dist.all_reduce(flag, dist.ReduceOp.MAX)
    expect(flag, torch.tensor([True, False]), "bool")
    for dtype in (torch.complex64, torch.complex128):
        number = torch.full((3,), complex(RANK, 1), dtype=dtype)
        dist.all_reduce(number)
        expect(number, torch.full((3,), complex(SIZE * (SIZE - 1) / 2, SIZE), dtype=dtype), "complex")
    for tensor in (torch.tensor([1 + 2j]), torch.tensor([True]), torch.zeros(0), torch.tensor(3.5)):
        got = tensor.clone() if RANK == 0 else torch.zeros_like(tensor)
        dist.broadcast(got, 0)
        expect(got, tensor, "broadcast")


def check_rooted():
    for root in {0, SIZE - 1}:
        for shape in (lambda t: t, strided):
            value = shape(torch.full((2, 3), float(RANK)))
            dist.broadcast(value, root)
            expect(value, torch.full((2, 3), float(root)), "broadcast")
            value = shape(torch.full((2, 3), float(RANK + 1)))
            dist.reduce(value, root)
            if RANK == root:
                expect(value, torch.full((2, 3), SIZE * (SIZE + 1) / 2), "reduce")
            outputs = [shape(torch.zeros(2, 3)) for _ in range(SIZE)] if RANK == root else None
            dist.gather(shape(torch.full((2, 3), float(RANK))), outputs, root)
            for rank, output in enumerate(outputs or []):
                expect(output, torch.full((2, 3), float(rank)), "gather")
            inputs = every_rank(lambda rank: shape(torch.full((2, 3), float(rank)))) if RANK == root else None
            output = shape(torch.zeros(2, 3))
            dist.scatter(output, inputs, root)
            expect(output, torch.full((2, 3), float(RANK)), "scatter")


def check_gathers():
    for shape in (lambda t: t, strided):
        outputs = every_rank(lambda _: shape(torch.zeros(2, 2)))
        dist.all_gather(outputs, shape(torch.full((2, 2), float(RANK))))
        for rank, output in enumerate(outputs):
            expect(output, torch.full((2, 2), float(rank)), "all_gather")
        output = torch.zeros(2)
        dist.reduce_scatter(output, every_rank(lambda rank: shape(torch.full((2,), float(rank + RANK)))))
        expect(output, torch.full((2,), float(SIZE * RANK + SIZE * (SIZE - 1) / 2)), "reduce_scatter")
    whole = torch.zeros(SIZE, 3)
    dist.all_gather(list(whole.unbind()), torch.full((3,), float(RANK)))
    expect(whole, torch.arange(SIZE).float().unsqueeze(1).expand(SIZE, 3).contiguous(), "all_gather in one tensor")
    gather_into = dist.all_gather_into_tensor if hasattr(dist, "all_gather_into_tensor") else dist._all_gather_base
    into = torch.zeros(SIZE, 3)
    gather_into(into, torch.full((3,), float(RANK)))
    expect(into, whole, "all_gather_into_tensor")
    scatter_tensor = dist.reduce_scatter_tensor if hasattr(dist, "reduce_scatter_tensor") else dist._reduce_scatter_base
    block = torch.zeros(3)
    scatter_tensor(block, whole.clone())
    expect(block, torch.full((3,), float(SIZE * RANK)), "reduce_scatter_tensor")


def check_alltoall():
    output = torch.zeros(SIZE)
    dist.all_to_all_single(output, torch.arange(SIZE).float() + 10 * RANK)
    expect(output, torch.tensor(every_rank(lambda rank: float(10 * rank + RANK))), "all_to_all_single")
    # Rank r sends d + 1 rows to rank d.
    sent = torch.cat(every_rank(lambda rank: torch.full((rank + 1, 2), float(100 * RANK + rank))))
    output = torch.zeros(SIZE * (RANK + 1), 2)
    dist.all_to_all_single(output, sent, [RANK + 1] * SIZE, every_rank(lambda rank: rank + 1))
    expect(output, torch.cat(every_rank(lambda rank: torch.full((RANK + 1, 2), float(100 * rank + RANK)))), "uneven all_to_all_single")
    outputs = every_rank(lambda rank: strided(torch.zeros(RANK + 1)))
    dist.all_to_all(outputs, every_rank(lambda rank: torch.full((rank + 1,), float(100 * RANK + rank))))
    for rank, output in enumerate(outputs):
        expect(output, torch.full((RANK + 1,), float(100 * rank + RANK)), "all_to_all")


def check_messages():
    if SIZE == 1:
        return
    after, before = (RANK + 1) % SIZE, (RANK - 1) % SIZE
    works = [dist.isend(torch.full((4,), float(RANK + i)), after) for i in range(3)]
    for i in range(3):
        got = strided(torch.zeros(4))
        work = dist.irecv(got, before)
        work.wait()
        expect(got, torch.full((4,), float(before + i)), "recv")
    for work in works:
        work.wait()
    got = torch.zeros(2)
    operations = [dist.P2POp(dist.isend, torch.full((2,), float(RANK)), after), dist.P2POp(dist.irecv, got, before)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    expect(got, torch.full((2,), float(before)), "batch_isend_irecv")
    # The message that was sent last is received first.
    works = [dist.isend(torch.full((3,), float(10 * tag + RANK)), after, tag=tag) for tag in (5, 6)]
    for tag in (6, 5):
        got = torch.zeros(3)
        assert dist.recv(got, before, tag=tag) == before
        expect(got, torch.full((3,), float(10 * tag + before)), "recv with a tag")
    for work in works:
        work.wait()
    for tag in (0, 7):
        if RANK > 0:
            dist.send(torch.full((2,), float(RANK)), 0, tag=tag)
            continue
        sources = []
        for _ in range(SIZE - 1):
            got = torch.zeros(2)
            sources.append(dist.recv(got, tag=tag))
            expect(got, torch.full((2,), float(sources[-1])), "recv from any source")
        assert sorted(sources) == list(range(1, SIZE)), sources


def check_objects():
    objects = [None] * SIZE
    dist.all_gather_object(objects, {"rank": RANK, "text": "x" * (RANK + 1)})
    assert objects == every_rank(lambda rank: {"rank": rank, "text": "x" * (rank + 1)}), objects
    objects = ["from 0", 17] if RANK == 0 else [None, None]
    dist.broadcast_object_list(objects, 0)
    assert objects == ["from 0", 17], objects
    mine = [None]
    dist.scatter_object_list(mine, every_rank(lambda rank: {"rank": rank}) if RANK == 0 else None, 0)
    assert mine == [{"rank": RANK}], mine


def check_coalesced():
    tensors = [torch.full((3,), float(RANK)), strided(torch.full((2, 2), RANK + 1.0))]
    dist.all_reduce_coalesced(tensors)
    expect(tensors[0], torch.full((3,), SIZE * (SIZE - 1) / 2), "all_reduce_coalesced")
    expect(tensors[1], torch.full((2, 2), SIZE * (SIZE + 1) / 2), "all_reduce_coalesced")
    backend = cpu_backend()
    lists = every_rank(lambda _: [torch.zeros(2), torch.zeros(3)])
    backend.allgather_coalesced(lists, [torch.full((2,), float(RANK)), torch.full((3,), float(-RANK))]).wait()
    for rank, (first, second) in enumerate(lists):
        expect(first, torch.full((2,), float(rank)), "allgather_coalesced")
        expect(second, torch.full((3,), float(-rank)), "allgather_coalesced")
    if IS_TORCH_2:
        first, second = torch.ones(2), torch.ones(3)
        backend._start_coalescing()
        backend.allreduce([first])
        backend.allreduce([second])
        backend._end_coalescing().wait()
        expect(first, torch.full((2,), float(SIZE)), "coalesced")
        expect(second, torch.full((3,), float(SIZE)), "coalesced")


def check_sparse():
    # Every rank has row 0 and one row of its own.
    mine = torch.sparse_coo_tensor([[0, RANK + 1]], [[1.0, 2.0], [3.0, RANK]], (SIZE + 1, 2), dtype=torch.float32)
    dist.all_reduce(mine)
    rows = [[float(SIZE), 2.0 * SIZE]] + every_rank(lambda rank: [3.0, float(rank)])
    expect(mine.to_dense(), torch.tensor(rows), "sparse all_reduce")


def check_work():
    """Work, futures and sequence numbers."""
    backend = cpu_backend()
    first = backend._get_sequence_number_for_group()
    tensor = torch.ones(1 << 16)
    work = dist.all_reduce(tensor, async_op=True)
    future = work.get_future()

    def continue_with_another(finished):
        # Waits within the callback of a future, as communication hooks do.
        again = dist.all_reduce(finished.value()[0], async_op=True)
        return again.get_future().wait()[0]

    chained = future.then(continue_with_another)
    expect(chained.wait(), torch.full((1 << 16,), float(SIZE * SIZE)), "a chain of futures")
    assert work.wait() and work.is_completed() and work.is_success()
    assert len(work.result()) == 1
    assert backend._get_sequence_number_for_group() == first + 2
    # Nobody keeps these, and their results arrive all the same.
    dropped = [strided(torch.full((1000,), float(RANK))) for _ in range(20)]
    for tensor in dropped:
        dist.all_reduce(tensor, async_op=True)
    dist.barrier()
    dist.all_reduce(torch.zeros(1))
    polled = dist.barrier(async_op=True)
    while not polled.is_completed():
        pass
    doubled = torch.full((1000,), float(RANK))
    works = [dist.all_reduce(doubled, async_op=True), dist.all_reduce(torch.zeros(3), async_op=True)]
    for work in reversed(works):
        work.wait()
    expect(doubled, torch.full((1000,), SIZE * (SIZE - 1) / 2), "waiting in another order")


def check_groups():
    assert dist.get_backend() == "tutti"
    for rank in range(SIZE):
        alone = dist.new_group([rank])
        if rank == RANK:
            tensor = torch.full((2,), 3.0)
            dist.all_reduce(tensor, group=alone)
            expect(tensor, torch.full((2,), 3.0), "group of one")
    everybody = dist.new_group(list(range(SIZE)))
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=everybody)
    expect(tensor, torch.full((2,), float(SIZE)), "new_group")
    dist.destroy_process_group(everybody)
    dist.monitored_barrier()
    shared = tutti.torch.empty(3, 5)
    shared += RANK
    dist.all_reduce(shared)
    expect(shared, torch.full((3, 5), SIZE * (SIZE - 1) / 2), "memory of the node")
    assert tutti.torch.empty((2, 2), dtype=torch.int64).dtype == torch.int64


def check_life():
    """What torch 2.13 asks of a backend besides moving tensors."""
    if not hasattr(dist, "shrink_group"):
        return
    group = dist.new_group(list(range(SIZE)))
    backend = cpu_backend(group)
    assert backend.name() == "tutti" and backend.supports_coalescing and backend.supports_splitting and not backend.supports_time_estimate
    for refused in (backend.suspend, backend.resume, backend.memory_stats):
        expect_error(RuntimeError, ["own memory on a GPU"], refused)
    untimed = dist.all_reduce(torch.ones(1), group=group, async_op=True)
    untimed.wait()
    expect_error(RuntimeError, ["timing was not enabled"], untimed._get_duration)
    ended = []
    group._register_on_completion_hook(ended.append)
    works = [dist.all_reduce(torch.ones(10), group=group, async_op=True) for _ in range(3)]
    group._wait_for_pending_works()
    assert sorted(info.seq for info in ended) == [2, 3, 4] and all(info.op_type == torch._C._distributed_c10d.OpType.ALLREDUCE for info in ended)
    assert all(work._get_duration() > 0 for work in works) and works[0].get_future_result().wait() == 0
    if SIZE > 1 and RANK < SIZE - 1:
        survivors = backend.shrink([SIZE - 1])
        tensor = torch.ones(3)
        survivors.allreduce(tensor).wait()
        expect(tensor, torch.full((3,), SIZE - 1.0), "a shrunk group")
    expect_error(RuntimeError, ["only those that stay"], lambda: backend.shrink([RANK]))


def check_beside_another_backend():
    """A group whose tensors on GPUs are another backend's: one that every build of torch has in NCCL's place."""
    if not IS_TORCH_2:
        return
    group = dist.new_group(list(range(SIZE)), backend="cpu:tutti,cuda:gloo")
    assert "cpu:tutti,cuda:gloo" in str(dist.get_backend_config(group)) and cpu_backend(group).name() == "tutti"
    tensor = torch.full((5,), float(RANK))
    dist.all_reduce(tensor, group=group)
    expect(tensor, torch.full((5,), SIZE * (SIZE - 1) / 2), "a group of two backends")


def check_arguments():
    backend = cpu_backend()
    expect_error(RuntimeError, ["non-empty tensor list"], lambda: backend.allreduce([]))
    expect_error(RuntimeError, ["allreduce", "type at index 1"], lambda: backend.allreduce([torch.zeros(2), torch.zeros(2, dtype=torch.int64)]))
    expect_error(RuntimeError, ["broadcast", "invalid root rank"], lambda: backend.broadcast(torch.zeros(2), SIZE))
    expect_error(RuntimeError, ["allgather"], lambda: backend.allgather([[torch.zeros(2)] * (SIZE + 1)], [torch.zeros(2)]))
    expect_error((TypeError, RuntimeError), ["bitwise"], lambda: dist.all_reduce(torch.zeros(1), dist.ReduceOp.BAND))
    expect_error(RuntimeError, ["peer"], lambda: backend.send([torch.zeros(1)], SIZE, 0))
    os.environ["TUTTI_PROGRESS_THREADS"] = "0"
    expect_error(ValueError, ["TUTTI_PROGRESS_THREADS"], lambda: dist.new_group([RANK]))
    del os.environ["TUTTI_PROGRESS_THREADS"]


def part_collectives(store):
    join(store)
    for name, check in sorted(globals().items()):
        if name.startswith("check_"):
            check()
    dist.barrier()


def part_many(store):
    """More ranks than CPUs."""
    join(store)
    for count in (1, 1000, 100000):
        tensor = torch.full((count,), float(RANK))
        for _ in range(5):
            dist.all_reduce(tensor, dist.ReduceOp.AVG)
        expect(tensor, torch.full((count,), (SIZE - 1) / 2), "all_reduce")
        works = [dist.all_reduce(torch.ones(count), async_op=True) for _ in range(10)]
        for work in works:
            expect(work.get_future().wait()[0], torch.full((count,), float(SIZE)), "all_reduce in the background")
    check_messages()
    check_alltoall()


# -- training -----------------------------------------------------------------------------------------------


def losses(group, hook=None):
    """Of a small network trained by DistributedDataParallel over `group`."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 5))
    model = torch.nn.parallel.DistributedDataParallel(network, process_group=group, bucket_cap_mb=0.001)
    if hook is not None:
        model.register_comm_hook(group, hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    torch.manual_seed(100 + RANK)
    result = []
    for _ in range(10):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(torch.randn(16, 20)), torch.randn(16, 5))
        loss.backward()
        optimizer.step()
        result.append(loss.item())
    return result


def hook_of(group):
    """Halves the gradients' precision and averages them, by callbacks."""

    def hook(_state, bucket):
        half = bucket.buffer().to(torch.float16).div_(SIZE)
        future = dist.all_reduce(half, group=group, async_op=True).get_future()
        return future.then(lambda finished: bucket.buffer().copy_(finished.value()[0]))

    return hook


def part_training(store):
    join(store)
    gloo = dist.new_group(list(range(SIZE)), backend="gloo")
    for hook in (None, hook_of):
        mine = losses(dist.group.WORLD, hook and hook(dist.group.WORLD))
        theirs = losses(gloo, hook and hook(gloo))
        if SIZE == 2:
            assert mine == theirs, (mine, theirs)
        torch.testing.assert_close(torch.tensor(mine), torch.tensor(theirs), rtol=1e-2 if hook else 1e-5, atol=1e-4)
        assert len(set(mine)) == len(mine), mine
    from torch.distributed.optim import ZeroRedundancyOptimizer  # pylint: disable=import-outside-toplevel
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(10, 10))
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=0.1)
    model(torch.randn(4, 10)).sum().backward()
    optimizer.step()
    weights = [torch.zeros(10, 10) for _ in range(SIZE)]
    dist.all_gather(weights, model.module.weight.detach())
    assert all(torch.equal(weight, weights[0]) for weight in weights)
    if IS_TORCH_2:
        train_sharded()
    dist.barrier()


def train_sharded():
    """fully_shard over a DeviceMesh, and the older FSDP: the same losses as without sharding."""
    from torch.distributed.device_mesh import init_device_mesh  # pylint: disable=import-outside-toplevel
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard  # pylint: disable=import-outside-toplevel

    def run(shard):
        torch.manual_seed(3)
        model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
        model = shard(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        result = []
        torch.manual_seed(7)
        for _ in range(4):
            optimizer.zero_grad()
            loss = model(torch.randn(8, 8)).pow(2).mean()
            loss.backward()
            optimizer.step()
            result.append(loss.item())
        return torch.tensor(result)

    whole = run(lambda model: model)
    torch.testing.assert_close(run(lambda model: fully_shard(model, mesh=init_device_mesh("cpu", (SIZE,)))), whole)
    torch.testing.assert_close(run(lambda model: FullyShardedDataParallel(model, device_id=torch.device("cpu"))), whole)


def run_example(page):
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
    with open(os.path.join(root, page), encoding="utf-8") as file:
        blocks = re.findall(r"```py\n(.*?)```", file.read(), re.DOTALL)
    assert len(blocks) == 1, (page, len(blocks))
    exec(compile(blocks[0], page, "exec"), {})  # pylint: disable=exec-used


def part_readme(_store):
    run_example("README.md")


def part_page(_store):
    run_example("docs/pytorch.md")


def main(parts):
    global RANK, SIZE  # pylint: disable=global-statement
    part, store = sys.argv[1], None
    if len(sys.argv) > 2:
        RANK, SIZE, store = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    else:
        RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    parts["part_" + part](store)
    # Some leave their groups, some just end: both are a goodbye.
    if dist.is_initialized() and part != "death" and RANK % 2 == 0:
        dist.destroy_process_group()
    print(f"rank {RANK} of {SIZE}: {part} is right", flush=True)


if __name__ == "__main__":
    main(globals())
