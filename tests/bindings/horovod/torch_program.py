"""A rank of the tests of tutti.horovod.torch. usage: torch_program.py PART [FILE]"""

import copy
import itertools
import json
import os
import signal
import sys
import time
import warnings

import torch
from program_checks import expect_error, run_as_horovod

import tutti.horovod.torch as hvd

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.uint8, torch.int8, torch.int32, torch.int64]


def expect(actual, expected, what):
    assert actual.dtype == expected.dtype and torch.equal(actual, expected), f"rank {hvd.rank()}: {what}: {actual}, expected {expected}"


def equal_on_all_ranks(tensors):
    parts = hvd.allgather_object([tensor.detach().double().flatten().tolist() for tensor in tensors])
    return all(part == parts[0] for part in parts)


# -- tensors ------------------------------------------------------------------------------------------------


def check_dtypes():
    ranks = range(hvd.size())
    for dtype in DTYPES:
        mine = (torch.arange(6).reshape(2, 3) + hvd.rank()).to(dtype)
        expected = sum((torch.arange(6).reshape(2, 3) + rank) for rank in ranks).to(dtype)
        expect(hvd.allreduce(mine, op=hvd.Sum), expected, f"sum of {dtype}")
        expect(
            hvd.allgather(mine), torch.cat([(torch.arange(6).reshape(2, 3) + rank).to(dtype) for rank in ranks]), f"allgather of {dtype}"
        )
        expect(hvd.broadcast(mine, 0), torch.arange(6).reshape(2, 3).to(dtype), f"broadcast of {dtype}")
    flags = torch.tensor([hvd.rank() == 0, False])
    expect(hvd.allgather(flags)[:2], torch.tensor([True, False]), "flags")
    expect_error(ValueError, ["not supported"], hvd.allreduce, flags)
    expect_error(ValueError, ["contiguous"], hvd.allreduce, torch.ones(3, 2).t())
    whole = hvd.allreduce(torch.full((3,), 7), op=hvd.Average)
    expect(whole, torch.full((3,), 7), "average of integers")
    uneven = hvd.allgather(torch.full((hvd.rank(), 2), hvd.rank()))
    expect(uneven, torch.cat([torch.full((rank, 2), rank) for rank in ranks]), "uneven allgather")
    splits = torch.arange(hvd.size(), dtype=torch.int32)
    output, received = hvd.alltoall(torch.full((int(splits.sum()),), hvd.rank()), splits)
    expect(received, torch.full((hvd.size(),), hvd.rank(), dtype=torch.int32), "received splits")
    expect(output, torch.arange(hvd.size()).repeat_interleave(hvd.rank()), "alltoall")
    sparse = torch.sparse_coo_tensor([[hvd.rank(), 0]], [1.0, 2.0], (hvd.size() + 1,))
    dense = hvd.sparse_allreduce_async(sparse, "sparse", hvd.Sum)().to_dense()
    expected = torch.ones(hvd.size() + 1)
    expected[-1] = 0
    expected[0] += 2 * hvd.size()
    expect(dense, expected, "sparse")
    nothing = hvd.allreduce(torch.empty(0))
    assert nothing.shape == (0,)


def check_gradients():
    """What flows back through a collective, as Horovod defines it."""
    size, rank = hvd.size(), hvd.rank()
    weight = torch.arange(1.0, 4.0) * (rank + 1)
    mean_weight = torch.arange(1.0, 4.0) * sum(range(1, size + 1)) / size

    def gradient(function, shape=(3,)):
        tensor = torch.ones(shape, requires_grad=True)
        function(tensor).backward()
        return tensor.grad

    expect(gradient(lambda t: (hvd.allreduce(t, op=hvd.Sum) * weight).sum()), mean_weight * size, "sum")
    assert torch.allclose(gradient(lambda t: (hvd.allreduce(t) * weight).sum()), mean_weight)
    assert torch.allclose(gradient(lambda t: (hvd.broadcast(t, 0) * weight).sum()), mean_weight if rank == 0 else torch.zeros(3))
    scaled = torch.arange(float(size)) * (rank + 1)
    got = gradient(lambda t: (hvd.allgather(t) * scaled).sum(), (1,))
    assert torch.allclose(got, torch.tensor([rank * sum(range(1, size + 1)) / size]))
    got = gradient(lambda t: (hvd.reducescatter(t, op=hvd.Sum) * (rank + 1)).sum(), (size,))
    expect(got, torch.arange(1.0, size + 1) * size, "reducescatter")
    got = gradient(lambda t: (hvd.alltoall(t) * (rank + 1)).sum(), (size,))
    expect(got, torch.arange(1.0, size + 1), "alltoall")
    a, b = torch.ones(2, requires_grad=True), torch.ones(1, requires_grad=True)
    first, second = hvd.grouped_allreduce([a, b], op=hvd.Sum)
    (first.sum() + second.sum()).backward()
    expect(a.grad, torch.full((2,), float(size)), "first of a group")
    expect(b.grad, torch.full((1,), float(size)), "second of a group")


# -- models -------------------------------------------------------------------------------------------------


def make_model(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(5, 7), torch.nn.Tanh(), torch.nn.Linear(7, 3))


def batches(count, size=12):
    generator = torch.Generator().manual_seed(1)
    return [(torch.randn(size, 5, generator=generator), torch.randn(size, 3, generator=generator)) for _ in range(count)]


def own_part(batch):
    return [part.chunk(hvd.size())[hvd.rank()] for part in batch]


def train(model, optimizer, steps=5, passes=1):
    for number, batch in enumerate(batches(steps * passes)):
        inputs, targets = own_part(batch)
        loss = torch.nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        if (number + 1) % passes == 0:
            optimizer.step()
            optimizer.zero_grad()


def check_optimizer():
    """Each form of the optimizer trains as one process with the whole batch does."""
    reference = make_model()
    train_alone(reference)
    variants = {
        "plain": {},
        "groups": {"groups": 2},
        "lists": {"groups": "lists"},
        "predivide": {"gradient_predivide_factor": 2.0},
        "fp16": {"compression": hvd.Compression.fp16},
        "bf16": {"compression": hvd.Compression.bf16},
    }
    for name, options in variants.items():
        model = make_model(seed=hvd.rank())
        hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        if options.get("groups") == "lists":
            options["groups"] = [list(model[0].parameters()), [model[2].weight]]
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), **options)
        assert isinstance(optimizer, torch.optim.SGD) and type(optimizer).__name__ == "SGD"
        train(model, optimizer)
        assert equal_on_all_ranks(model.parameters()), name
        tolerance = 1e-2 if name in ("fp16", "bf16") else 1e-5
        for own, expected in zip(model.parameters(), reference.parameters()):
            assert torch.allclose(own, expected, atol=tolerance), f"{name}: {own} {expected}"


def train_alone(model, steps=5):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for inputs, targets in batches(steps):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), targets).backward()
        optimizer.step()


def check_passes_and_rules():
    model = make_model()
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters(), backward_passes_per_step=2
    )
    train(model, optimizer, passes=2)
    assert equal_on_all_ranks(model.parameters())
    model = make_model()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
    loss = model(torch.ones(1, 5)).sum()
    loss.backward()
    if hvd.size() > 1:
        expect_error(AssertionError, ["race condition"], optimizer.zero_grad)
        expect_error(AssertionError, ["backward_passes_per_step"], model(torch.ones(1, 5)).sum().backward)
    optimizer.synchronize()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    with optimizer.skip_synchronize():
        optimizer.step()
    optimizer.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.step()
    assert any("skip_synchronize" in str(warning.message) for warning in caught)
    named = list(model.named_parameters())
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    expect_error(ValueError, ["unique", "x"], hvd.DistributedOptimizer, sgd, [("x", p) for _, p in named])
    expect_error(ValueError, ["not named"], hvd.DistributedOptimizer, sgd, named[1:])
    expect_error(ValueError, ["tuples"], hvd.DistributedOptimizer, sgd, model.parameters())
    expect_error(ValueError, ["> 0"], hvd.DistributedOptimizer, sgd, named, backward_passes_per_step=0)
    expect_error(ValueError, ["Average"], hvd.DistributedOptimizer, sgd, named, op=hvd.Sum, gradient_predivide_factor=2.0)
    expect_error(ValueError, ["once"], hvd.DistributedOptimizer, sgd, named, groups=[[named[0][1]], [named[0][1]]])


def check_unused_parameters():
    """Ranks may use different parameters in a step: the others give zeros."""
    model = torch.nn.ModuleList([torch.nn.Linear(2, 2) for _ in range(3)])
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=1.0), named_parameters=model.named_parameters())
    for step in range(4):
        model[(hvd.rank() + step) % 3](torch.ones(1, 2)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
    assert equal_on_all_ranks(model.parameters())


def check_sparse():
    for sparse_as_dense, optimizer_class in itertools.product((False, True), (torch.optim.SGD, torch.optim.Adagrad)):
        torch.manual_seed(0)
        table = torch.nn.Embedding(10, 3, sparse=True)
        reference = copy.deepcopy(table)
        optimizer = hvd.DistributedOptimizer(
            optimizer_class(table.parameters(), lr=0.1), named_parameters=table.named_parameters(), sparse_as_dense=sparse_as_dense
        )
        alone = optimizer_class(reference.parameters(), lr=0.1)
        for step in range(3):
            rows = [torch.tensor([(rank + step) % 10, 5]) for rank in range(hvd.size())]
            table(rows[hvd.rank()]).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            (sum(reference(row).sum() for row in rows) / hvd.size()).backward()
            alone.step()
            alone.zero_grad()
        assert torch.allclose(table.weight, reference.weight, atol=1e-6)
        assert equal_on_all_ranks(table.parameters())


def sums_of(state):
    return {key: None if value is None else float(torch.as_tensor(value).double().sum()) for key, value in state.items()}


def check_state():
    """Optimizers' state and options are rank 0's afterwards; parameters stay as they are."""
    kinds = [
        (torch.optim.SGD, {"momentum": 0.9, "weight_decay": 0.1}),
        (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.RMSprop, {"momentum": 0.5}),
        (torch.optim.Adagrad, {}),
        (torch.optim.Adadelta, {}),
        (torch.optim.SGD, {}),
    ]
    for kind, options in kinds:
        model = make_model()
        optimizer = kind(model.parameters(), lr=0.1 * (hvd.rank() + 1), **options)
        if hvd.rank() == 0:
            for inputs, targets in batches(2):
                torch.nn.functional.mse_loss(model(inputs), targets).backward()
                optimizer.step()
        before = [p.detach().clone() for p in model.parameters()]
        hvd.broadcast_optimizer_state(optimizer, root_rank=0)
        assert all(torch.equal(p, old) for p, old in zip(model.parameters(), before))
        if optimizer.state_dict()["state"]:
            assert optimizer.param_groups[0]["lr"] == 0.1
            states = hvd.allgather_object([sums_of(state) for state in optimizer.state_dict()["state"].values()])
            assert all(state == states[0] for state in states), kind
    expect_error(ValueError, ["LBFGS"], hvd.broadcast_optimizer_state, torch.optim.LBFGS(make_model().parameters()), 0)
    expect_error(ValueError, ["params"], hvd.broadcast_parameters, 3, 0)


def check_adasum():
    if hvd.size() & (hvd.size() - 1):
        return
    model = make_model()
    start = [p.detach().clone() for p in model.parameters()]
    optimizer = hvd.DistributedOptimizer(
        torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters(), op=hvd.Adasum
    )
    inputs, targets = batches(1)[0]
    torch.nn.functional.mse_loss(model(inputs), targets).backward()  # equal on all ranks: Adasum averages
    gradients = [p.grad.clone() for p in model.parameters()]
    optimizer.step()
    for parameter, first, gradient in zip(model.parameters(), start, gradients):
        assert torch.allclose(parameter, first - 0.1 * gradient, atol=1e-6)
    optimizer.zero_grad()
    train(model, optimizer)
    assert equal_on_all_ranks(model.parameters())


def check_sync_batch_norm():
    """As BatchNorm of one process with all batches, with batches of unlike sizes and half floats."""
    generator = torch.Generator().manual_seed(2)
    parts = [torch.randn(3 + rank, 4, 5, generator=generator) * 2 + 1 for rank in range(hvd.size())]
    reference = torch.nn.BatchNorm1d(4)
    whole = torch.cat(parts).requires_grad_()
    weight = torch.arange(whole.numel(), dtype=torch.float32).reshape(whole.shape)
    expected = reference(whole)
    (expected * weight).sum().backward()
    layer = hvd.SyncBatchNorm(4)
    first = sum(len(part) for part in parts[: hvd.rank()])
    mine = slice(first, first + len(parts[hvd.rank()]))
    own = parts[hvd.rank()].clone().requires_grad_()
    got = layer(own)
    (got * weight[mine]).sum().backward()
    assert torch.allclose(got, expected[mine], atol=1e-4)
    assert torch.allclose(own.grad, whole.grad[mine], atol=1e-2, rtol=1e-3)
    assert torch.allclose(hvd.allreduce(layer.weight.grad, op=hvd.Sum), reference.weight.grad, rtol=1e-3)
    assert torch.allclose(layer.running_mean, reference.running_mean, atol=1e-5)
    assert torch.allclose(layer.running_var, reference.running_var, atol=1e-4)
    layer.eval()
    assert layer(own).shape == own.shape
    expect_error(ValueError, ["2D"], layer, torch.ones(3))


def check_elastic():
    model = make_model(seed=hvd.rank())
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), named_parameters=model.named_parameters())
    sampler = hvd.elastic.ElasticSampler(list(range(10)))
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, sampler=sampler, epoch=hvd.rank())

    @hvd.elastic.run
    def work(state):
        assert state.epoch == 0 and equal_on_all_ranks(state.model.parameters())
        saved = [p.detach().clone() for p in model.parameters()]
        state.epoch = 3
        state.commit()
        train(model, optimizer)
        sampler.record_batch(0, 2)
        state.epoch = 4
        state.restore()
        assert state.epoch == 3 and all(torch.equal(p, old) for p, old in zip(model.parameters(), saved))
        assert sampler.state_dict() == {"epoch": 0, "processed_num": 0}
        raise hvd.HorovodInternalError("a rank was lost")

    expect_error(hvd.HorovodInternalError, ["no rank was lost"], work, state)
    parts = hvd.allgather_object(list(sampler))
    assert {index for part in parts for index in part} == set(range(10)) and len({len(part) for part in parts}) == 1
    sampler.record_batch(0, 2)
    sampler.load_state_dict(sampler.state_dict())
    used = {index for part in parts for index in part[:2]}
    left = {index for part in hvd.allgather_object(list(sampler)) for index in part}
    assert left == set(range(10)) - used, (left, used)
    scheduler = torch.optim.lr_scheduler.StepLR(torch.optim.SGD(model.parameters(), lr=1.0), 1)
    assert hvd.elastic.TorchState(scheduler=scheduler).scheduler is scheduler


def check_alias():
    """Scripts that import horovod, in a process that has the alias on its path."""
    program = (
        "import horovod, horovod.torch.elastic, horovod.common.util, tutti.horovod.torch, horovod.torch as hvd\n"
        "from horovod.common.process_sets import ProcessSet\n"
        "from horovod.common.exceptions import HorovodInternalError\n"
        "assert hvd is tutti.horovod.torch and hvd.HorovodInternalError is HorovodInternalError and hvd.ProcessSet is ProcessSet\n"
        "assert hvd.__name__ == hvd.__spec__.name == 'tutti.horovod.torch'\n"
    )
    if hvd.rank() == 0:
        run_as_horovod(program)


def prepare_digits(seed):
    """(images, labels, model, optimizer)"""
    from sklearn import datasets  # pylint: disable=import-outside-toplevel

    digits = datasets.load_digits()
    images = torch.tensor(digits.images, dtype=torch.float64).reshape(-1, 64) / 16
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(64, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10)).double()
    optimizer = hvd.DistributedOptimizer(torch.optim.SGD(model.parameters(), lr=0.5), named_parameters=model.named_parameters())
    return images, torch.tensor(digits.target), model, optimizer


def train_digits(file):
    """Losses and parameters of a training whose batch all ranks share; compared by the test."""
    images, labels, model, optimizer = prepare_digits(seed=3)
    hvd.broadcast_parameters(model.state_dict(), root_rank=0)
    losses = []
    for step in range(60):
        batch = slice(64 * step % 1600, 64 * step % 1600 + 64)
        inputs, targets = own_part((images[batch], labels[batch]))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(hvd.allreduce(loss.detach(), name="loss").item())
    assert equal_on_all_ranks(model.parameters())
    if hvd.rank() == 0:
        with open(file, "w", encoding="utf-8") as output:
            json.dump(losses, output)


def train_elastic(ranks, least, lost):
    """Trains in a job of `ranks` ranks, which goes on with `least`. Those that `lost` names kill themselves, each in its step: {rank: step}.

    Processes that take their places do not: they come as the highest ranks.
    """
    first_rank = hvd.rank()
    images, labels, model, optimizer = prepare_digits(seed=hvd.rank())
    state = hvd.elastic.TorchState(model=model, optimizer=optimizer, step=0, losses=[], sizes=[])
    sizes_after_resets = []
    state.register_reset_callbacks([lambda: sizes_after_resets.append(hvd.size())])

    @hvd.elastic.run
    def train(state):
        while state.step < 40 or state.sizes[-5:] != [ranks] * 5:
            batch = [(64 * state.step + hvd.rank() + i * hvd.size()) % len(images) for i in range(64 // hvd.size())]
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[batch]), labels[batch])
            if lost.get(first_rank) == state.step:
                os.kill(os.getpid(), signal.SIGKILL)
            loss.backward()
            optimizer.step()
            state.losses.append(hvd.allreduce(loss.detach(), name="loss").item())
            state.sizes.append(hvd.size())
            state.step += 1
            if hvd.size() < ranks:
                time.sleep(0.01)  # until a process has come
            if state.step % 5 == 0:
                state.commit()

    train(state)
    assert len(state.losses) == state.step and state.losses[-1] < 0.5 * state.losses[0], state.losses
    # A step that failed was begun anew from the last commit. Ranks wait for others only where they are fewer than `least`.
    changes = [ranks] if ranks == least else [ranks, least, ranks]
    assert [size for size, _ in itertools.groupby(state.sizes)] == changes, state.sizes
    if ranks > least:
        assert state.sizes.index(least) == min(lost.values()) // 5 * 5, state.sizes
    expected = [ranks] * len(lost) if ranks == least else changes[1:]
    assert sizes_after_resets == expected[len(expected) - len(sizes_after_resets) :], sizes_after_resets
    assert hvd.size() == ranks and hvd.local_size() == int(os.environ["LOCAL_WORLD_SIZE"]) and equal_on_all_ranks(model.parameters())
    # A process keeps its place on the node, and a new one has that of the dead one.
    assert hvd.local_rank() == int(os.environ["LOCAL_RANK"])
    # One write: output is unbuffered, and the ranks share it.
    sys.stdout.write(f"{first_rank} went on as {hvd.rank()} of {hvd.size()}\n")


PARTS = {
    "tensors": [check_dtypes, check_gradients],
    "optimizer": [check_optimizer, check_passes_and_rules, check_unused_parameters, check_sparse, check_adasum],
    "alias": [check_alias],
    "state": [check_state, check_sync_batch_norm, check_elastic],
}

if __name__ == "__main__":
    torch.set_num_threads(1)
    hvd.init()
    if sys.argv[1] == "digits":
        train_digits(sys.argv[2])
    elif sys.argv[1] == "elastic":
        ranks_and_steps = {int(rank): int(step) for rank, step in (word.split(":") for word in sys.argv[4:])}
        train_elastic(int(sys.argv[2]), int(sys.argv[3]), ranks_and_steps)
    for check in PARTS.get(sys.argv[1], []):
        check()
        hvd.barrier()
