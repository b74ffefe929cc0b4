"""A rank of the tests of tutti.torch: DistributedDataParallel goes on without a rank that is killed in a backward pass.

Knows torch 2.13's interface only. usage, under a launcher that lets survivors go on: survive_program.py FOLDER
A survivor leaves its number in FOLDER, as the name of a file.
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist

import tutti.torch

STEPS, LAST_STEP_OF_RANK_1 = 30, 10


class Network(torch.nn.Module):
    """Counts its steps, so that rank 0 hands the number on together with the parameters."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(8, 64), torch.nn.Linear(64, 1)
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, data):
        hidden = torch.tanh(self.first(data))
        if dist.get_world_size() == 4 and dist.get_rank() == 1 and self.steps == LAST_STEP_OF_RANK_1:
            hidden.register_hook(lambda gradient: os.kill(os.getpid(), signal.SIGKILL))
        return self.second(hidden)


def train(network, data, wanted):
    """The loss of all ranks in each step, until the network has made all steps."""
    model = torch.nn.parallel.DistributedDataParallel(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.02)
    losses = []
    while network.steps < STEPS:
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(data), wanted)
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        optimizer.step()
        network.steps += 1
        losses.append(mean.item())
    return losses


def main():
    torch.set_num_threads(1)
    dist.init_process_group("tutti")
    torch.manual_seed(dist.get_rank())
    data = torch.randn(256, 8)
    wanted = data.sum(dim=1, keepdim=True).sin()
    network = Network()
    try:
        train(network, data, wanted)
    except RuntimeError as error:
        begin = time.monotonic()
        assert "rank 1" in str(error), error
        dead = tutti.torch.dead_ranks()
        dist.shrink_group(dead)
        took = time.monotonic() - begin
    assert dead == [1] and dist.get_world_size() == 3
    losses = train(network, data, wanted)
    assert network.steps == STEPS and len(losses) == STEPS - LAST_STEP_OF_RANK_1, losses
    assert all(after < before for before, after in zip(losses, losses[1:])), losses
    mine = torch.cat([parameter.detach().flatten() for parameter in network.parameters()])
    all_of_them = [torch.empty_like(mine) for _ in range(3)]
    dist.all_gather(all_of_them, mine)
    assert all(torch.equal(mine, other) for other in all_of_them)
    print(f"rank {dist.get_rank()} of 3 goes on {took * 1000:.0f} ms after the error: loss {losses[0]:.4f} to {losses[-1]:.4f}", flush=True)
    name = os.path.join(sys.argv[1], str(dist.get_rank()))
    dist.destroy_process_group()
    with open(name, "w", encoding="utf-8"):
        pass


if __name__ == "__main__":
    main()
