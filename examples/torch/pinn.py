#!/usr/bin/env python3
"""A physics-informed network: solves -u'' = 4 pi^2 sin(2 pi x), u(-1) = u(1) = 0, from 51 points per rank, without data of u.

    torchrun --nproc_per_node 2 pinn.py               one network, each rank has its part of the interval
    torchrun --nproc_per_node 2 pinn.py --ensemble    a network per rank, all points, seeds of their own
    torchrun --nproc_per_node 2 pinn.py --own         rank r solves -u'' = (k pi)^2 sin(k pi x) with k = r + 1
"""
import math

import torch

import curves


class Poisson:
    """-u'' = (k pi)^2 sin(k pi x), whose solution is u = sin(k pi x)."""

    point_count, prediction_count = 51, 201

    def __init__(self, waves=2):
        self.waves = waves
        self.name = f"-u'' = {waves}^2 pi^2 sin({waves} pi x)"

    def of_rank(self, rank, size):
        mine = Poisson(rank + 1)
        return mine, curves.all_points(mine, size)

    def prediction_points(self):
        return curves.part_of_interval(0, 1, self.prediction_count)

    def solution(self, network, points):
        """Is zero at both ends whatever the network says."""
        return (1 - points * points) * network(points)

    def loss(self, network, points):
        points = points.clone().requires_grad_(True)
        first = gradient(self.solution(network, points), points)
        second = gradient(first, points)
        scale = (self.waves * math.pi) ** 2
        return ((-second / scale - torch.sin(self.waves * math.pi * points)) ** 2).mean()

    def exact(self, points):
        return torch.sin(self.waves * math.pi * points)

    def predict(self, network, points):
        with torch.no_grad():
            return self.solution(network, points)


def gradient(values, points):
    """d values / d points, pointwise, to be derived further."""
    return torch.autograd.grad(values.sum(), points, create_graph=True)[0]


def make_parser():
    return curves.make_parser(__doc__.splitlines()[0], "an ensemble in which rank r has the right-hand side with r + 1 half waves")


if __name__ == "__main__":
    curves.main(Poisson(), make_parser())
