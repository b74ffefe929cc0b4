"""A rank of the tests of tutti.torch: how long operations, memory, threads and keys of the store live.

Knows torch's interface only, of 1.13 and 2. usage: life_program.py PART RANK SIZE STORE_FILE
"""
import copy
import datetime
import io
import os
import resource
import socket
import threading
import time

import rank_program as base
import torch
import torch.distributed as dist

import tutti.torch


def wait_until(holds, what):
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, f"rank {base.RANK}: {what}"
        time.sleep(0.01)


def thread_count():
    return len(os.listdir("/proc/self/task"))


def check_barrier_waits_for_what_is_under_way():
    """Collectives before a barrier are complete after it, their results in place, whoever keeps their Work."""
    total = base.SIZE * (base.SIZE + 1) / 2
    for count in (10, 10000, 200000):
        for round_number in range(5):
            plain = [torch.full((count,), base.RANK + 1.0 + i) for i in range(6)]
            staged = [base.strided(tensor) for tensor in plain]
            works = [dist.all_reduce(tensor, async_op=True) for tensor in plain + staged]
            if round_number % 2 == 1:
                works = works[:3]  # the others are dropped
            if round_number == 3:
                dist.barrier(async_op=True)
            if round_number < 4:
                dist.barrier()
            else:
                dist.barrier(async_op=True).get_future().wait()
            for i, (first, second) in enumerate(zip(plain, staged)):
                expected = torch.full((count,), total + i * base.SIZE)
                base.expect(first, expected, "all_reduce before a barrier")
                base.expect(second.contiguous(), expected, "all_reduce of a strided tensor before a barrier")
            for work in works:
                work.wait()
    if base.SIZE > 1:  # messages are not waited for: this one is sent after the barrier
        received = torch.zeros(3)
        work = dist.irecv(received, (base.RANK - 1) % base.SIZE)
        dist.barrier()
        dist.send(torch.full((3,), float(base.RANK)), (base.RANK + 1) % base.SIZE)
        work.wait()
        base.expect(received, torch.full((3,), float((base.RANK - 1) % base.SIZE)), "a message over a barrier")


def check_inference_tensors():
    """Results arrive in tensors of inference mode, whoever waits, where, or not at all."""
    def on_another_thread(work):
        thread = threading.Thread(target=work.wait)
        thread.start()
        thread.join()

    for end in (lambda work: work.wait(), lambda work: work.get_future().wait(), on_another_thread, lambda work: None):
        with torch.inference_mode():
            outputs = [torch.zeros(3) for _ in range(base.SIZE)]
            work = dist.all_gather(outputs, torch.full((3,), base.RANK + 1.0), async_op=True)
        end(work)
        del work
        dist.barrier()
        for rank, output in enumerate(outputs):
            assert output.is_inference()
            base.expect(output, torch.full((3,), rank + 1.0), "all_gather to inference tensors")
    leaf = torch.zeros(2, 2, requires_grad=True)
    view = leaf.detach().t()
    before = view._version
    dist.all_reduce(view.add_(1), async_op=True).wait()
    assert not view.is_inference() and view._version > before  # autograd learns of what was written
    base.expect(view.contiguous(), torch.full((2, 2), float(base.SIZE)), "all_reduce of a view of a leaf")


def check_results_that_cannot_be_copied_back():
    """An error of whoever waits; of a dropped operation a warning, and the process goes on."""
    def gather():
        outputs = [torch.zeros(3).expand(4, 3) for _ in range(base.SIZE)]
        return dist.all_gather(outputs, torch.ones(4, 3), async_op=True)

    base.expect_error(RuntimeError, ["single memory location"], gather().wait)
    base.expect_error(RuntimeError, ["single memory location"], gather().get_future().wait)
    for _ in range(3):
        gather()
    dist.barrier()
    dist.all_reduce(torch.ones(1))


def check_callbacks_that_raise():
    def fail(_future):
        raise ValueError("raised in a callback")

    future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(fail)
    base.expect_error(Exception, ["raised in a callback"], future.wait)
    dist.barrier()


def check_threads():
    """Futures under way take no thread each, whatever the timeout, and callbacks' threads end after a peak."""
    if base.SIZE == 1:
        return
    group = dist.new_group(list(range(base.SIZE)))
    if base.IS_TORCH_2:
        base.cpu_backend(group).set_timeout(base.seconds(60))
    before = thread_count()
    is_last = base.RANK == base.SIZE - 1
    if is_last:
        dist.barrier()  # the others' operations wait for this rank's
    works = [dist.all_reduce(torch.full((10,), float(i)), group=group, async_op=True) for i in range(300)]
    futures = [work.get_future() for work in works]
    if is_last:
        for future in futures:
            future.wait()
        return
    assert thread_count() < before + 20, (before, thread_count())
    release = threading.Event()
    started = threading.Semaphore(0)

    def block(future):
        started.release()
        release.wait(60)
        return future.value()[0]

    blocked = [future.then(block) for future in futures[:30]]
    dist.barrier()
    for _ in blocked:
        assert started.acquire(timeout=60)
    peak = thread_count()
    assert peak > 30, peak
    release.set()
    for i, future in enumerate(blocked):
        base.expect(future.wait(), torch.full((10,), float(i * base.SIZE)), "a blocked callback")
    for future in futures:
        future.wait()
    wait_until(lambda: thread_count() < peak - 25, f"threads of callbacks stay: {peak} at most, {thread_count()} now")


def check_groups_without_descriptors():
    """Groups are made in the world that their ranks have already, and cost no descriptor."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    dist.barrier()
    few = len(os.listdir("/proc/self/fd")) + 24
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, limits[1]))
    groups = [dist.new_group(timeout=datetime.timedelta(seconds=20 + i)) for i in range(40)]
    pairs = [dist.new_group([0, base.SIZE - 1]) for _ in range(20)] if base.SIZE > 2 else []
    for i, group in enumerate(groups + (pairs if base.RANK in (0, base.SIZE - 1) else [])):
        tensor = torch.full((10,), float(i))
        dist.all_reduce(tensor, group=group)
        base.expect(tensor, torch.full((10,), float(i * dist.get_world_size(group))), f"all_reduce of group {i}")
    assert len(os.listdir("/proc/self/fd")) < few - 12
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def callback_threads():
    names = []
    for task in os.listdir("/proc/self/task"):
        try:
            with open(f"/proc/self/task/{task}/comm", encoding="utf-8") as file:
                names.append(file.read().strip())
        except OSError:
            pass  # it has ended
    return names.count("tutti-callback")


def check_out_of_threads():
    """Where the system gives no thread, a callback runs all the same, and the limits are named."""
    if base.SIZE == 1:
        return
    last = base.SIZE - 1
    token = torch.ones(1)
    for peer in range(last) if base.RANK == last else []:
        dist.recv(token, peer)
    if base.RANK == last:  # whose operation the others' wait for, until they have said that each has its callback
        for peer in range(last):
            dist.recv(token, peer)
        dist.all_reduce(torch.ones(3))
        dist.barrier()
        return
    dist.send(token, last)
    wait_until(lambda: callback_threads() == 0, "threads of callbacks stay")
    release = threading.Event()
    others = []
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    said = os.memfd_create("stderr")
    before = os.dup(2)
    try:
        resource.setrlimit(resource.RLIMIT_AS, (used + (4 << 20), hard))  # less than a stack
        try:
            while len(others) < 1000:  # until no stack of a thread that has ended is left
                thread = threading.Thread(target=release.wait)
                thread.start()
                others.append(thread)
        except RuntimeError:
            pass
        os.dup2(said, 2)
        future = dist.all_reduce(torch.ones(3), async_op=True).get_future().then(lambda done: done.value()[0] + 1)
        dist.send(token, last)
        base.expect(future.wait(), torch.full((3,), base.SIZE + 1.0), "a callback without a thread")
    finally:
        os.dup2(before, 2)
        os.close(before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
        release.set()
    for thread in others:
        thread.join()
    os.lseek(said, 0, os.SEEK_SET)
    text = os.read(said, 1 << 16).decode()
    os.close(said)
    assert "tutti-callback" in text and "ulimit -u" in text and "ulimit -v" in text, text
    dist.barrier()


def check_keys_of_the_store():
    """What the backend puts into a store is gone when nobody needs it."""
    if base.SIZE == 1:
        return
    before = dist.distributed_c10d._get_default_store()
    dist.barrier()
    own = dist.PrefixStore(f"looked at {base.RANK}", before)
    own.set("key", "value")
    dist.barrier()
    count = before.num_keys()
    dist.barrier()
    group = dist.new_group(list(range(base.SIZE)))
    dist.barrier(group)
    by_torch = before.num_keys() - count  # its own, of the same number for every group
    dist.barrier()
    plain = dist.new_group(list(range(base.SIZE)), backend="tutti")
    dist.barrier(plain)
    dist.monitored_barrier(plain)
    dist.barrier(plain)
    assert before.num_keys() - count == 2 * by_torch, (count, by_torch, before.num_keys())
    dist.barrier()
    own.delete_key("key")


def check_options():
    if not base.IS_TORCH_2:
        return
    backend = base.cpu_backend()
    options = copy.deepcopy(backend.options)
    assert options.backend == "tutti" and options._timeout == base.seconds(120), options._timeout
    options._timeout = base.seconds(7)
    assert backend.options._timeout == base.seconds(120)


def part_life(store):
    base.join(store)
    for name, check in sorted(globals().items()):
        if name.startswith("check_"):
            check()
    dist.barrier()


def part_memory(store):
    """Tensors of tutti.torch.empty() after their group has been left, and after their world."""
    base.join(store)
    weight = torch.nn.Parameter(tutti.torch.empty(100, 100))
    weight.data += base.RANK
    dist.all_reduce(weight.data)
    kept = weight.data[3]  # a view outlives the tensor
    dist.destroy_process_group()
    file = io.BytesIO()
    torch.save({"weight": weight}, file)
    file.seek(0)
    expected = torch.full((100, 100), base.SIZE * (base.SIZE - 1) / 2)
    base.expect(torch.load(file)["weight"].data, expected, "a saved parameter")
    del weight
    base.expect(kept, expected[3], "a view of it")
    for i in range(3):
        base.join(f"{store}.again{i}")
        dist.all_reduce(kept)
        dist.destroy_process_group()
    base.expect(kept, expected[3] * base.SIZE**3, "the memory of one world in another")


def part_again(store):
    """Joining and leaving again and again, with one store and the same names in it."""
    shared = dist.FileStore(store, base.SIZE)
    for i in range(20):
        prefix = "again" if base.IS_TORCH_2 else f"again{i}"  # 1.13 itself counts ranks under names that stay
        dist.init_process_group("tutti", store=dist.PrefixStore(prefix, shared), rank=base.RANK, world_size=base.SIZE,
                                timeout=datetime.timedelta(seconds=60))
        tensor = torch.full((10,), float(i))
        dist.all_reduce(tensor)
        base.expect(tensor, torch.full((10,), float(i * base.SIZE)), f"all_reduce of life {i}")
        if i % 2 == 0:
            dist.barrier()
        dist.destroy_process_group()
    install_for_gloo(store)


def install_for_gloo(store):
    """A program that names gloo gets tutti, also in a later group, and with torch 2 where the name is a part or the default."""
    from torch.distributed import init_process_group  # pylint: disable=import-outside-toplevel  # as it was before
    base.expect_error(ValueError, ["expected one of gloo, ", "got 'glou'"], lambda: tutti.torch.install_as("glou"))
    tutti.torch.install_as("gloo")
    for i, backend in enumerate(("gloo", "GLOO", "cpu:gloo", None) if base.IS_TORCH_2 else ("gloo",)):
        named = {} if backend is None else {"backend": backend}
        init_process_group(init_method=f"file://{store}.as{i}", rank=base.RANK, world_size=base.SIZE, **named)
        part = dist.new_group(list(range(base.SIZE)), **({} if backend is None else {"backend": "gloo"}))
        for group in (dist.group.WORLD, part):
            assert tutti.torch._torch.is_tutti(base.cpu_backend(group)), f"{backend}: {base.cpu_backend(group)}"
            tensor = torch.full((10,), 1.0)
            dist.all_reduce(tensor, group=group)
            base.expect(tensor, torch.full((10,), float(base.SIZE)), f"all_reduce with {backend} for tutti")
        dist.destroy_process_group()


def part_again_at_port(store):
    """The same over a server that rank 0 starts and ends each time."""
    if not base.IS_TORCH_2:
        return  # whose ranks do not say when they leave
    if base.RANK == 0:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        with open(store + ".new", "w", encoding="ascii") as file:
            file.write(port)
        os.rename(store + ".new", store)
    wait_until(lambda: os.path.exists(store), "no port")
    with open(store, encoding="ascii") as file:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=file.read(), RANK=str(base.RANK), WORLD_SIZE=str(base.SIZE))
    for i in range(10):
        try:
            dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=20))
        except dist.DistNetworkError:
            # The server of the life before was still closing. That is between torch's store and itself.
            dist.init_process_group("tutti", timeout=datetime.timedelta(seconds=20))
        tensor = torch.full((10,), float(i))
        dist.all_reduce(tensor)
        base.expect(tensor, torch.full((10,), float(i * base.SIZE)), f"all_reduce of life {i}")
        dist.barrier()
        dist.destroy_process_group()


if __name__ == "__main__":
    base.main(globals())
