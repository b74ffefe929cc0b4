#!/usr/bin/env python3
"""Learns y = sin(2 pi x) + sin(4 pi x) on [-1, 1] from 16 points per rank: data parallel, or as an ensemble.

    torchrun --nproc_per_node 2 function_approximation.py               one network, each rank has its part of the interval
    torchrun --nproc_per_node 2 function_approximation.py --ensemble    a network per rank, all points, seeds of their own
    torchrun --nproc_per_node 2 function_approximation.py --own         a network per rank, each for its part of the interval
"""
import math

import torch

import curves


class Approximation:
    name = "sin(2 pi x) + sin(4 pi x)"
    point_count, prediction_count = 16, 101

    def __init__(self, part=0, parts=1):
        self.part, self.parts = part, parts

    def of_rank(self, rank, size):
        return Approximation(rank, size), curves.part_of_interval(rank, size, self.point_count)

    def prediction_points(self):
        return curves.part_of_interval(self.part, self.parts, self.prediction_count)

    def loss(self, network, points):
        return torch.nn.functional.mse_loss(network(points), self.exact(points))

    def exact(self, points):
        return torch.sin(2 * math.pi * points) + torch.sin(4 * math.pi * points)

    def predict(self, network, points):
        with torch.no_grad():
            return network(points)


def make_parser():
    return curves.make_parser(__doc__.splitlines()[0], "an ensemble in which each rank has the data of its part of the interval only")


if __name__ == "__main__":
    curves.main(Approximation(), make_parser())
