#!/usr/bin/env python3
"""torch.distributed.all_reduce over tutti and over gloo, in turn within one job, on tensors of the CPU.

Knows torch's interface only. Usage, with the package installed or on PYTHONPATH:
    torchrun --nproc_per_node 2 bench/torch_allreduce.py [--rounds 9] [--sizes 4,16384]    (torch 1.13 on Python 3.11: torchrun -r 1 -t 1)
Prints a line per size: us per call over tutti, over gloo, and in a group of this rank alone, which is what torch itself costs (each
the best round of its kind).
"""
import argparse
import datetime
import time

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401  # pylint: disable=unused-import

SIZES = (4, 1 << 10, 1 << 14, 1 << 17, 1 << 20, 1 << 23, 1 << 26)  # bytes of float32


def calls_per_round(size):
    return max(3, min(200, (1 << 23) // size))


def time_calls(tensor, group, count):
    dist.barrier()
    begin = time.perf_counter()
    for _ in range(count):
        dist.all_reduce(tensor, group=group)
    return (time.perf_counter() - begin) / count * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sizes", help="bytes, with commas between; default: 4 B to 64 MiB")
    options = parser.parse_args()
    rounds = options.rounds
    sizes = [int(size) for size in options.sizes.split(",")] if options.sizes else SIZES
    torch.set_num_threads(1)
    dist.init_process_group("tutti", timeout=datetime.timedelta(minutes=5))
    ranks = list(range(dist.get_world_size()))
    groups = {"tutti": dist.group.WORLD, "gloo": dist.new_group(ranks, backend="gloo")}
    for rank in ranks:
        alone = dist.new_group([rank])
        if rank == dist.get_rank():
            groups["alone"] = alone
    if dist.get_rank() == 0:
        print(f"{'bytes':>10} {'tutti us':>10} {'gloo us':>10} {'alone us':>10} {'gloo/tutti':>10}", flush=True)
    for size in sizes:
        tensor = torch.zeros(size // 4)
        best = dict.fromkeys(groups, float("inf"))
        for _ in range(rounds):
            for name, group in groups.items():
                best[name] = min(best[name], time_calls(tensor, group, calls_per_round(size)))
        if dist.get_rank() == 0:
            ratio = best["gloo"] / best["tutti"]
            print(f"{size:10d} {best['tutti']:10.1f} {best['gloo']:10.1f} {best['alone']:10.1f} {ratio:10.1f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
