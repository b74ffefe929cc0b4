#!/usr/bin/env python3
"""Learns y = sin(2 pi x) + sin(4 pi x), or solves u'' = -u with u(0) = 0, u'(0) = 1, by a small network: data parallel, or as an ensemble.

tutti run -n 2 python approximation.py                    one network; each rank has its part of the points
tutti run -n 2 python approximation.py --ensemble         a network per rank, with all points and a seed of its own
tutti run -n 2 python approximation.py --problem pinn     the equation, by a physics-informed network
"""

import argparse
import math

import torch
import tutti.horovod.torch as hvd

POINTS = 64


class Sine:
    name = "sin(2 pi x) + sin(4 pi x)"
    interval = (-1.0, 1.0)

    def exact(self, x):
        return torch.sin(2 * math.pi * x) + torch.sin(4 * math.pi * x)

    def loss(self, network, x):
        return torch.nn.functional.mse_loss(network(x), self.exact(x))


class Oscillator:
    """The loss is what the equation and its initial values are missed by; no solution is given."""

    name = "u'' = -u"
    interval = (0.0, math.pi)

    def exact(self, x):
        return torch.sin(x)

    def loss(self, network, x):
        x = x.clone().requires_grad_()
        u = network(x)
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (bend,) = torch.autograd.grad(slope.sum(), x, create_graph=True)
        zero = torch.zeros(1, 1, requires_grad=True)
        start = network(zero)
        (start_slope,) = torch.autograd.grad(start.sum(), zero, create_graph=True)
        return ((bend + u) ** 2).mean() + (start**2).sum() + ((start_slope - 1) ** 2).sum()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", choices=("sine", "pinn"), default="sine")
    parser.add_argument("--ensemble", action="store_true", help="a network per rank")
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()

    hvd.init()
    torch.manual_seed(hvd.rank())
    problem = Sine() if options.problem == "sine" else Oscillator()
    network = torch.nn.Sequential(torch.nn.Linear(1, 40), torch.nn.Tanh(), torch.nn.Linear(40, 40), torch.nn.Tanh(), torch.nn.Linear(40, 1))
    points = torch.linspace(*problem.interval, POINTS).unsqueeze(1)
    optimizer = torch.optim.Adam(network.parameters(), lr=2e-3)
    if not options.ensemble:
        points = points[hvd.rank() :: hvd.size()]
        optimizer = hvd.DistributedOptimizer(optimizer, named_parameters=network.named_parameters())
        hvd.broadcast_parameters(network.state_dict(), root_rank=0)

    for step in range(options.steps):
        optimizer.zero_grad()
        loss = problem.loss(network, points)
        loss.backward()
        optimizer.step()
        if step % max(1, options.steps // 4) == 0 and hvd.rank() == 0:
            print(f"step {step:5d}  loss {loss.item():.5f}", flush=True)

    # An ensemble predicts by the mean of its members; their spread says how sure it is.
    x = torch.linspace(*problem.interval, 101).unsqueeze(1)
    with torch.no_grad():
        predictions = hvd.allgather(network(x).t(), name="predictions")
    error = (predictions.mean(0) - problem.exact(x).squeeze(1)).abs().max().item()
    if hvd.rank() == 0:
        spread = predictions.std(0, unbiased=False).max().item()
        print(f"{problem.name}: largest error {error:.4f}, spread of {hvd.size()} networks {spread:.4f}")


if __name__ == "__main__":
    main()
