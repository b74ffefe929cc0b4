#!/usr/bin/env python3
"""Pipeline parallelism with send and recv: each rank has a part of the layers, and micro-batches go through the ranks.

    torchrun --nproc_per_node 2 pipeline.py

A rank computes while its neighbours do: all micro-batches forward, then all backward (as GPipe does). The losses are, bit for bit, those
of one process that adds up the gradients of the same micro-batches; --check compares.
"""
import math

import torch
import torch.distributed as dist

import job

WIDTH, BLOCKS = 64, 8


def make_layers(seed):
    """The whole network: input, blocks, output. Every rank makes it and keeps its part, so that the seed says all."""
    torch.manual_seed(seed)
    blocks = [torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.ReLU()) for _ in range(BLOCKS - 2)]
    return [torch.nn.Sequential(torch.nn.Linear(2, WIDTH), torch.nn.ReLU()), *blocks, torch.nn.Linear(WIDTH, 1)]


def stage_of(layers, part, parts):
    return torch.nn.Sequential(*layers[len(layers) * part // parts:len(layers) * (part + 1) // parts])


def make_batch(seed, step, count):
    """Points of a square and the heights there."""
    points = torch.rand(count, 2, generator=torch.Generator().manual_seed(1000 * seed + step)) * 2 - 1
    return points, torch.sin(2 * math.pi * points[:, :1]) * torch.cos(math.pi * points[:, 1:])


class Stage:
    """A rank's part: takes from the rank before, gives to the one after. Messages carry the micro-batch's number as their tag."""

    def __init__(self, ranks, options, group=None):
        self.rank, self.last, self.group, self.options = ranks.rank, ranks.size - 1, group, options
        self.layers = stage_of(make_layers(options.seed), ranks.rank, ranks.size)
        self.optimizer = torch.optim.Adam(self.layers.parameters(), lr=options.rate)
        self.sent = []  # operations with their tensors, until they are complete

    def send(self, tensor, rank, tag):
        self.sent.append((dist.isend(tensor, rank, group=self.group, tag=tag), tensor))

    def receive(self, count, rank, tag):
        tensor = torch.empty(count, WIDTH)
        dist.recv(tensor, rank, group=self.group, tag=tag)
        return tensor

    def step(self, points, heights):
        """One optimizer step. Returns the loss of the batch on the last rank, 0 on others."""
        parts = list(zip(points.chunk(self.options.micro_batches), heights.chunk(self.options.micro_batches)))
        self.optimizer.zero_grad()
        inputs, outputs = [], []
        for tag, (here, wanted) in enumerate(parts):
            inputs.append(here if self.rank == 0 else self.receive(len(here), self.rank - 1, tag).requires_grad_(True))
            output = self.layers(inputs[-1])
            if self.rank == self.last:
                output = torch.nn.functional.mse_loss(output, wanted) / len(parts)
            else:
                self.send(output.detach(), self.rank + 1, tag)
            outputs.append(output)
        for tag, output in enumerate(outputs):
            output.backward(None if self.rank == self.last else self.receive(len(output), self.rank + 1, tag))
            if self.rank > 0:
                self.send(inputs[tag].grad, self.rank - 1, tag)
        for work, _ in self.sent:
            work.wait()
        self.sent.clear()
        self.optimizer.step()
        return sum(output.item() for output in outputs) if self.rank == self.last else 0.0


class Alone:
    """One stage that is the whole network."""
    rank, size = 0, 1


def train(ranks, options, group=None):
    """Returns the losses, on all ranks."""
    stage, losses = Stage(ranks, options, group), []
    for step in range(1, options.steps + 1):
        loss = torch.tensor([stage.step(*make_batch(options.seed, step, options.batch))], dtype=torch.float64)
        if ranks.size > 1:
            dist.broadcast(loss, ranks.size - 1, group=group)
        losses.append(loss.item())
        if not options.quiet and job.is_said(step, options.steps):
            ranks.say(f"step {step:4d}  loss {losses[-1]:.5f}")
    return losses


def make_parser():
    parser = job.parser(__doc__.splitlines()[0], 200)
    parser.add_argument("--batch", type=int, default=256, help="points per step (default: %(default)s)")
    parser.add_argument("--micro-batches", type=int, default=8, help="parts of a batch (default: %(default)s)")
    parser.add_argument("--rate", type=float, default=0.003, help="learning rate (default: %(default)s)")
    parser.add_argument("--check", action="store_true", help="train on one rank as well and compare the losses")
    return parser


def main():
    parser = make_parser()
    options = parser.parse_args()
    if options.batch % options.micro_batches != 0:
        parser.error(f"--batch {options.batch}: expected a multiple of --micro-batches {options.micro_batches}")
    with job.Job(options.backend) as ranks:
        if ranks.size > BLOCKS:
            parser.error(f"{ranks.size} ranks: expected at most {BLOCKS}, one for each block of layers")
        losses = train(ranks, options)
        ranks.say(f"pipeline over {ranks.size} ranks, {options.micro_batches} micro-batches ({options.backend}): last loss {losses[-1]:.5f}")
        if options.check and ranks.rank == 0:
            options.quiet = True
            alone = train(Alone, options)
            print("the losses are those of one process, bit for bit" if alone == losses
                  else f"the losses differ from those of one process by at most {max(abs(a - b) for a, b in zip(alone, losses)):.1e}")


if __name__ == "__main__":
    main()
