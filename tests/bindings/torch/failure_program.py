"""A rank of the tests of tutti.torch: who is named when a rank dies or does not come, and that the others go on.

Knows torch's interface only, of 1.13 and 2. usage: failure_program.py PART [RANK SIZE STORE_FILE]
"""

import os
import signal

import rank_program as base
import torch
import torch.distributed as dist

import tutti.torch


def part_death(store):
    """Rank 2 of 3 is killed, then rank 0; the others say who, and go on."""
    base.join(store)
    dist.barrier()
    if base.RANK == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    work = dist.all_reduce(torch.ones(1 << 20), async_op=True)
    base.expect_error(RuntimeError, ["rank 2"], work.wait)
    assert work.is_completed() and not work.is_success()
    base.expect_error(RuntimeError, ["rank 2"], lambda: dist.all_reduce(torch.ones(1)))
    base.expect_error(RuntimeError, ["rank 2"], work.get_future().wait)
    go_on([2], dist.FileStore(store + "-2", 2))
    check_survivors(2)
    if base.RANK == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    base.expect_error(RuntimeError, ["rank 0"], lambda: dist.all_reduce(torch.ones(1)))
    if hasattr(dist, "shrink_group"):
        base.expect_error(RuntimeError, ["expected all ranks that have died, 0"], lambda: base.cpu_backend().shrink([]))
    go_on([0], dist.FileStore(store + "-1", 1))
    check_survivors(1)
    dist.destroy_process_group()


def go_on(dead, store):
    """By shrink_group where torch has it, else in a new group over `store`."""
    assert tutti.torch.dead_ranks() == dead
    if hasattr(dist, "shrink_group"):
        dist.shrink_group(tutti.torch.dead_ranks(), shrink_flags=dist.distributed_c10d.SHRINK_ABORT)
        return
    left = [rank for rank in range(dist.get_world_size()) if rank not in dead]
    rank = left.index(dist.get_rank())
    dist.destroy_process_group()
    dist.init_process_group("tutti", store=store, rank=rank, world_size=len(left), timeout=base.seconds(120))


def check_survivors(size):
    assert dist.get_world_size() == size and tutti.torch.dead_ranks() == []
    for group in (None, dist.new_group(list(range(size)))):
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        base.expect(tensor, torch.full((3,), float(size)), "the survivors")


def part_record(store):
    """Rank 1 of 2 dies before the second call. Rank 0 dies, too, so that both leave their records."""
    base.join(store)
    dist.all_reduce(torch.ones(3))
    if base.RANK == 0:
        base.expect_error(RuntimeError, ["rank 1"], lambda: dist.all_reduce(torch.ones(2)))
    os.kill(os.getpid(), signal.SIGKILL)


def part_timeout(store):
    """The last rank does not come: to waits that give up, to operations with a time of their own, to a group's time, to a new group."""
    base.join(store)
    everybody, missing = list(range(base.SIZE)), f"rank {base.SIZE - 1}"
    others = dist.new_group(everybody[:-1])
    groups = [dist.new_group(everybody, timeout=base.seconds(time)) for time in (60, 60, 60, 4)]
    dist.barrier()
    if base.RANK < base.SIZE - 1:
        miss_one(missing, *groups)
        base.expect_error(
            RuntimeError, ["Timed out", f"rank {base.SIZE - 1}"], lambda: dist.new_group(everybody, timeout=base.seconds(0.5))
        )
        dist.barrier(others)
        words = ["Timed out", f"Rank {base.SIZE - 1}"] if base.RANK == 0 else [f"Rank {base.RANK} successfully reached"]
        base.expect_error(RuntimeError, words, lambda: dist.monitored_barrier(timeout=base.seconds(2)))
    dist.barrier()


def miss_one(missing, first, second, third, brief):
    tensor = torch.ones(3)
    work = dist.all_reduce(tensor, group=first, async_op=True)
    base.expect_error(RuntimeError, ["Timed out", "allreduce", missing], lambda: work.wait(base.seconds(0.1)))
    assert not work.is_completed()  # it goes on
    receive = dist.irecv(tensor, base.SIZE - 1, group=first)
    base.expect_error(RuntimeError, ["Timed out", "recv", missing], lambda: receive.wait(base.seconds(0.1)))
    options = dist.AllreduceOptions()
    options.timeout = base.seconds(0.3)
    base.expect_error(
        RuntimeError, ["Timed out", "allreduce", missing, "0.3 s"], base.cpu_backend(second).allreduce([tensor], options).wait
    )
    base.expect_error(RuntimeError, ["Timed out", "allreduce", missing], lambda: dist.all_reduce(tensor, group=second))
    future = base.cpu_backend(third).allreduce([tensor], options).get_future()
    base.expect_error(RuntimeError, ["Timed out", "allreduce", missing, "0.3 s"], future.wait)
    work = dist.all_reduce(tensor, group=brief, async_op=True)
    base.expect_error(RuntimeError, ["Timed out", "allreduce", missing], work.wait)
    if base.IS_TORCH_2:
        assert work.get_future_result().wait() == 1  # WorkResult.TIMEOUT


if __name__ == "__main__":
    base.main(globals())
