"""A rank of the tests of tutti.torch on tensors of a GPU, which device_stand_in.cpp plays for a torch without CUDA.

Knows torch's interface only. usage: device_program.py device RANK SIZE STORE_FILE, with the stand-in's library in DEVICE_STAND_IN
"""
import contextlib
import os
import time

import rank_program as base
import torch
import torch.distributed as dist

stand_in = torch.ops.device_stand_in


def on_device(tensor):
    return stand_in.to_device(tensor)


def expect(actual, expected, what):
    """Ordered on the current stream, like all that the program does."""
    assert actual.device.type == "cuda", actual.device
    base.expect(actual.cpu(), expected, what)


@contextlib.contextmanager
def held():
    """The device carries nothing out meanwhile."""
    stand_in.hold(True)
    try:
        yield
    finally:
        stand_in.hold(False)


def full(value, count=1000):
    return torch.full((count,), float(value))


def mine(count=1000):
    return on_device(full(base.RANK, count))


def strided(tensor):
    wide = on_device(torch.zeros(*tensor.shape, 2, dtype=tensor.dtype))
    wide.select(-1, 1).copy_(tensor)
    return wide.select(-1, 1)


def sum_of_ranks():
    return base.SIZE * (base.SIZE - 1) / 2


# -- collectives --------------------------------------------------------------------------------------------


def check_one_tensor():
    for shape in (lambda t: t, strided):
        for count in (0, 1, 5000):
            tensor = shape(mine(count))
            dist.all_reduce(tensor)
            expect(tensor, full(sum_of_ranks(), count), "all_reduce")
            tensor = shape(mine(count))
            # dist.broadcast() asks a GPU for its age, which only a torch with CUDA can.
            dist.group.WORLD.broadcast(tensor, base.SIZE - 1).wait()
            expect(tensor, full(base.SIZE - 1, count), "broadcast")
        tensor = shape(mine())
        dist.reduce(tensor, 0)
        if base.RANK == 0:
            expect(tensor, full(sum_of_ranks()), "reduce")
    tensors = [mine(3), strided(mine(70000))]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        expect(tensor, full(sum_of_ranks(), tensor.numel()), "all_reduce_coalesced")


def check_gathers():
    for shape in (lambda t: t, strided):
        outputs = base.every_rank(lambda _: shape(on_device(torch.zeros(1000))))
        dist.all_gather(outputs, shape(mine()))
        for rank, output in enumerate(outputs):
            expect(output, full(rank), "all_gather")
    whole = on_device(torch.zeros(base.SIZE * 1000))
    dist.all_gather_into_tensor(whole, mine())
    expect(whole, torch.cat(base.every_rank(full)), "all_gather_into_tensor")
    outputs = base.every_rank(lambda _: on_device(torch.zeros(1000))) if base.RANK == 0 else None
    dist.gather(mine(), outputs, 0)
    for rank, output in enumerate(outputs or []):
        expect(output, full(rank), "gather")


def check_scatters():
    output = on_device(torch.zeros(1000))
    dist.reduce_scatter(output, base.every_rank(lambda rank: on_device(full(rank + base.RANK))))
    expect(output, full(base.SIZE * base.RANK + sum_of_ranks()), "reduce_scatter")
    dist.reduce_scatter_tensor(output, on_device(torch.cat(base.every_rank(full))))
    expect(output, full(base.SIZE * base.RANK), "reduce_scatter_tensor")
    dist.scatter(output, base.every_rank(lambda rank: on_device(full(rank + 7))) if base.RANK == 0 else None, 0)
    expect(output, full(base.RANK + 7), "scatter")


def check_alltoall():
    output = on_device(torch.zeros(base.SIZE * 10))
    dist.all_to_all_single(output, on_device(torch.cat(base.every_rank(lambda rank: full(10 * base.RANK + rank, 10)))))
    expect(output, torch.cat(base.every_rank(lambda rank: full(10 * rank + base.RANK, 10))), "all_to_all_single")
    outputs = base.every_rank(lambda rank: on_device(torch.zeros(rank + 1)))
    dist.all_to_all(outputs, base.every_rank(lambda _: mine(base.RANK + 1)))
    for rank, output in enumerate(outputs):
        expect(output, full(rank, rank + 1), "all_to_all")


def check_messages():
    following, before = (base.RANK + 1) % base.SIZE, (base.RANK - 1) % base.SIZE
    for tag in (0, 5):
        received = on_device(torch.zeros(1000))
        # A receive first, everywhere: on one stream, the sends would wait for it.
        works = [dist.irecv(received, before, tag=tag), dist.isend(mine(), following, tag=tag)]
        for work in works:
            work.wait()
        expect(received, full(before), "a ring of messages")
    received = on_device(torch.zeros(1000))
    for work in dist.batch_isend_irecv([dist.P2POp(dist.irecv, received, before), dist.P2POp(dist.isend, mine(), following)]):
        work.wait()
    expect(received, full(before), "batch_isend_irecv")
    if base.RANK == 0:
        for _ in range(1, base.SIZE):
            source = dist.recv(received)
            expect(received, full(source), "from any source")
    else:
        dist.send(mine(), 0)


# -- streams, futures, errors -------------------------------------------------------------------------------


def check_waiting():
    """Nothing waits on the host but what is asked to; the current stream waits for all."""
    dist.barrier()
    tensor = mine()
    with held():
        work = dist.all_reduce(tensor, async_op=True)
        assert work.wait() and not work.is_completed()
        base.expect_error(RuntimeError, ["Timed out", "0.1 s", "goes on"], lambda: work.wait(base.seconds(0.1)))
        dist.all_reduce(tensor)
    expect(tensor, full(sum_of_ranks() * base.SIZE), "two sums, one after the other")
    assert work.wait(base.seconds(60)) and work.is_completed() and work.is_success()
    expect(work.result()[0], full(sum_of_ranks() * base.SIZE), "the result")
    # The host waits for a barrier, and that waits for what is before it on the stream.
    with held():
        work = dist.all_reduce(tensor, async_op=True)
        barrier = dist.barrier(async_op=True)
        assert not barrier.is_completed()
    barrier.wait()
    assert barrier.is_completed() and work.is_completed()


def check_dropped():
    """Memory that nobody waited for is not used again before the call is over, though nobody has it any more."""
    for shape in (lambda t: t, strided):
        output = on_device(torch.zeros(base.SIZE * 100000))
        with held():
            dist.all_gather_into_tensor(output, shape(mine(100000)), async_op=True)
        dist.all_reduce(mine(1))  # on the same stream, behind it
        expect(output, torch.cat(base.every_rank(lambda rank: full(rank, 100000))), "of an input that is gone")


def check_futures():
    """What is attached to a future is called at once; what it puts on its stream comes behind the operation."""
    tensor = mine()
    dist.barrier()
    with held():
        called = []

        def attached(finished):
            called.append(True)
            again = finished.value()[0].clone()
            return dist.all_reduce(again, async_op=True).get_future().then(lambda last: last.value()[0].clone()).wait()

        chained = dist.all_reduce(tensor, async_op=True).get_future().then(attached)
        assert called and chained.done()
        result = chained.wait()
    expect(result, full(sum_of_ranks() * base.SIZE), "a chain of futures")
    with dist._coalescing_manager(device=tensor.device, async_ops=True) as many:
        parts = [mine(), mine(10)]
        for part in parts:
            dist.reduce(part, 0)
    many.wait()
    for part in parts if base.RANK == 0 else []:
        expect(part, full(sum_of_ranks(), part.numel()), "coalesced")


def check_refusals():
    on_host, output = torch.zeros(base.SIZE * 1000), on_device(torch.zeros(base.SIZE * 1000))
    base.expect_error(RuntimeError, ["allgather", "on GPU 0", "in host memory"], lambda: dist.all_gather_into_tensor(on_host, mine()))
    # Blocks of different lengths go through host memory: nobody has been told anything yet.
    lengths = [1 + rank for rank in range(base.SIZE)]
    uneven = on_device(torch.zeros(base.SIZE * lengths[base.RANK]))

    def exchange():
        dist.all_to_all_single(uneven, mine(sum(lengths)), [lengths[base.RANK]] * base.SIZE, lengths)

    stand_in.fail("cuStreamWriteValue32", 801)
    base.expect_error(RuntimeError, ["alltoall", "cuStreamWriteValue32"], exchange)
    exchange()
    expect(uneven, torch.cat(base.every_rank(lambda rank: full(rank, lengths[base.RANK]))), "after refusals")
    dist.all_gather_into_tensor(output, mine())
    expect(output, torch.cat(base.every_rank(full)), "after refusals")


def check_late():
    """A rank that does not come: the stream's wait costs the host nothing, and says so once the time is over."""
    group = dist.new_group(list(range(base.SIZE)))
    tensor = mine()
    dist.all_reduce(tensor, group=group)
    if base.RANK == 0:
        options = dist.AllreduceOptions()
        options.timeout = base.seconds(2)
        work = group._get_backend(tensor.device).allreduce([tensor], options)
        assert work.wait() and not work.is_completed()
        deadline = time.monotonic() + 60
        while not work.is_completed():
            assert time.monotonic() < deadline, "it never ends"
            time.sleep(0.01)
        assert not work.is_success()
        base.expect_error(RuntimeError, ["Timed out", "allreduce", "2 s"], work.wait)
        base.expect_error(RuntimeError, ["2 s"], lambda: dist.all_reduce(tensor, group=group))
    dist.barrier()


def part_device(store):
    torch.ops.load_library(os.environ["DEVICE_STAND_IN"])
    base.join(store)
    for name, check in sorted(globals().items()):
        if name.startswith("check_"):
            check()
    dist.barrier()


if __name__ == "__main__":
    base.main(globals())
