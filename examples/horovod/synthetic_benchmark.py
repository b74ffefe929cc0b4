#!/usr/bin/env python3
"""Images per second of a training on random images, and what communication adds to a step: tutti, DDP over gloo, or Horovod.

tutti run -n 2 python synthetic_benchmark.py
tutti run -n 2 python synthetic_benchmark.py --library gloo
horovodrun -np 2 python synthetic_benchmark.py --library horovod
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "torch"))
from resnet50_model import make_resnet50  # pylint: disable=wrong-import-position


class HorovodLike:
    """tutti.horovod.torch or horovod.torch: both have one interface."""

    def __init__(self, hvd):
        self.hvd = hvd
        hvd.init()
        self.rank, self.size = hvd.rank(), hvd.size()

    def prepare(self, model, optimizer, options):
        compression = self.hvd.Compression.fp16 if options.fp16 else self.hvd.Compression.none
        self.hvd.broadcast_parameters(model.state_dict(), root_rank=0)
        return model, self.hvd.DistributedOptimizer(optimizer, named_parameters=model.named_parameters(), compression=compression)

    def maximum(self, value):
        return self.hvd.allreduce(torch.tensor([value]), op=self.hvd.Max, name="maximum").item()


class Gloo:
    def __init__(self):
        import torch.distributed as dist  # pylint: disable=import-outside-toplevel

        self.dist = dist
        dist.init_process_group("gloo")
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def prepare(self, model, optimizer, options):
        return torch.nn.parallel.DistributedDataParallel(model), optimizer

    def maximum(self, value):
        tensor = torch.tensor([value])
        self.dist.all_reduce(tensor, self.dist.ReduceOp.MAX)
        return tensor.item()


def library_of(name):
    if name == "gloo":
        return Gloo()
    if name == "horovod":
        import horovod.torch as hvd  # pylint: disable=import-outside-toplevel,import-error
    else:
        import tutti.horovod.torch as hvd  # pylint: disable=import-outside-toplevel
    return HorovodLike(hvd)


def make_model(name):
    if name == "resnet50":
        return make_resnet50()
    return torch.nn.Sequential(
        torch.nn.Flatten(), *[layer for _ in range(4) for layer in (torch.nn.LazyLinear(1024), torch.nn.ReLU())], torch.nn.LazyLinear(1000)
    )


def step(model, optimizer, images, labels):
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()


def times(function, count):
    result = []
    for _ in range(count):
        start = time.perf_counter()
        function()
        result.append(time.perf_counter() - start)
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", choices=("tutti", "gloo", "horovod"), default="tutti")
    parser.add_argument("--model", choices=("resnet50", "mlp"), default="resnet50")
    parser.add_argument("--batch", type=int, default=2, help="images per rank and step")
    parser.add_argument("--pixels", type=int, default=64, help="of an image's side")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--warm-up", type=int, default=3)
    parser.add_argument("--fp16", action="store_true", help="send gradients as half floats (tutti, Horovod)")
    parser.add_argument("--json", action="store_true", help="one line of JSON instead of a table")
    options = parser.parse_args()

    torch.set_num_threads(1)
    library = library_of(options.library)
    torch.manual_seed(0)
    images = torch.randn(options.batch, 3, options.pixels, options.pixels)
    labels = torch.randint(0, 1000, (options.batch,))
    model = make_model(options.model)
    model(images)
    plain = torch.optim.SGD(model.parameters(), lr=0.001)
    # The time of a step without communication, while the other ranks compute, too.
    times(lambda: step(model, plain, images, labels), options.warm_up)
    alone = statistics.median(times(lambda: step(model, plain, images, labels), options.steps))
    model, optimizer = library.prepare(model, plain, options)
    times(lambda: step(model, optimizer, images, labels), options.warm_up)
    each = times(lambda: step(model, optimizer, images, labels), options.steps)
    median = library.maximum(statistics.median(each))
    alone = library.maximum(alone)
    if library.rank == 0:
        result = {
            "library": options.library,
            "model": options.model,
            "ranks": library.size,
            "images_per_second": options.batch * library.size / median,
            "step_ms": 1e3 * median,
            "fastest_ms": 1e3 * min(each),
            "slowest_ms": 1e3 * max(each),
            "exposed_ms": 1e3 * (median - alone),
            "scaling": alone / median,
        }
        if options.json:
            print(json.dumps(result))
        else:
            for name, value in result.items():
                print(f"{name:18} {value if isinstance(value, (str, int)) else f'{value:.2f}'}")
    with contextlib.suppress(AttributeError):
        library.dist.destroy_process_group()


if __name__ == "__main__":
    main()
