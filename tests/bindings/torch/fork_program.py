"""Processes that are forked from one that has had, or has, a group of tutti.torch: as test runners, data loaders and prefork servers do.

Knows torch's and Python's interfaces only. usage: fork_program.py forks 0 1 STORE_FILE
"""
import multiprocessing
import os
import tempfile

import rank_program as base
import torch
import torch.distributed as dist

import tutti.torch

PATIENCE = 100  # seconds


def new_store():
    return tempfile.mktemp(dir=os.path.dirname(STORE))


def join(rank, size, store):
    if dist.is_initialized():
        dist.destroy_process_group()  # the parent's: here, only torch forgets it
    dist.init_process_group("tutti", init_method="file://" + store, rank=rank, world_size=size, timeout=base.seconds(60))


def work_as_rank(rank, size, store):
    join(rank, size, store)
    tensor = torch.full((3,), rank + 1.0)
    dist.all_reduce(tensor)
    expected = torch.full((3,), size * (size + 1) / 2)
    assert torch.equal(tensor, expected), (tensor, expected)
    future = dist.all_reduce(torch.ones(1), async_op=True).get_future().then(lambda done: done.value()[0] + 1)
    assert torch.equal(future.wait(), torch.full((1,), size + 1.0))
    dist.barrier()
    dist.destroy_process_group()


def run_ranks(method, size=2, target=work_as_rank):
    """`size` ranks of a group of their own, started as multiprocessing does."""
    context = multiprocessing.get_context(method)
    store = new_store()
    ranks = [context.Process(target=target, args=(rank, size, store)) for rank in range(size)]
    for process in ranks:
        process.start()
    for process in ranks:
        process.join(PATIENCE)
    codes = [process.exitcode for process in ranks]
    for process in ranks:
        process.kill()
    assert codes == [0] * size, (method, codes)


def forked(function):
    """Like a test of a runner that forks for each: the child's exit code says how it went."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            function()
            code = 0
        finally:
            os._exit(code)
    return pid


def expect_success(*pids):
    codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
    assert codes == [0] * len(codes), codes


def serve_with_workers(rank, size, store):
    """A rank that forks workers of its own while its group lives, each again a rank of another group."""
    join(rank, size, store)
    shared = tutti.torch.empty(1000)
    dist.all_reduce(shared.fill_(1))
    pending = dist.all_reduce(torch.ones(10), async_op=True)
    pending.get_future()  # threads of the parent, which children do not have
    inner = new_store()

    def use_and_drop():
        nonlocal shared, pending
        assert shared.sum().item() == 1000 * size
        del shared, pending

    expect_success(*[forked(lambda r=r: work_as_rank(r, 2, inner)) for r in range(2)], forked(use_and_drop))
    pending.wait()
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


class Rows(torch.utils.data.Dataset):
    def __init__(self, table):
        self.table = table

    def __len__(self):
        return len(self.table)

    def __getitem__(self, index):
        return self.table[index]


def load_in_workers():
    """DataLoader's workers have the group's memory, and may drop it."""
    table = tutti.torch.empty(8, 2)
    table += torch.arange(8.0).unsqueeze(1)
    for _ in range(2):
        loader = torch.utils.data.DataLoader(Rows(table), batch_size=2, num_workers=2, multiprocessing_context="fork")
        rows = torch.cat(list(loader))
        assert torch.equal(rows, table), rows


def part_forks(store):
    global STORE  # pylint: disable=global-statement
    STORE = store
    work_as_rank(0, 1, new_store())
    run_ranks("fork")  # after the parent has left its group
    base.join(store)
    run_ranks("fork", 3)  # while it has one
    expect_success(forked(lambda: work_as_rank(0, 1, new_store())))
    expect_success(forked(lambda: run_ranks("fork")))  # a fork of a fork
    run_ranks("fork", 2, serve_with_workers)
    load_in_workers()
    run_ranks("forkserver")
    run_ranks("spawn")
    inherited = tutti.torch.empty(10)
    expect_success(forked(dist.destroy_process_group))  # the parent's group is none of its business
    dist.all_reduce(inherited)
    assert inherited.sum().item() == 0


STORE = ""
if __name__ == "__main__":
    base.main(globals())
