#!/usr/bin/env python3
"""hvd.allreduce_ of a tensor of the CPU, called and awaited at once, by tutti.horovod.torch or by Horovod.

Knows Horovod's interface only. Usage, with the package installed or on PYTHONPATH:
    tutti run -n 2 python3 bench/horovod_allreduce.py [--library horovod] [--rounds 9] [--sizes 4,16384]
Horovod's own launcher starts it, too. Prints a line per size: us per call, median and best round of rank 0.
"""
import argparse
import importlib
import statistics
import time

import torch

SIZES = (4, 1 << 14, 1 << 20, 1 << 23)  # bytes of float32


def calls_per_round(size):
    return max(3, min(200, (1 << 23) // size))


def time_calls(hvd, tensor, count):
    hvd.barrier()
    begin = time.perf_counter()
    for _ in range(count):
        hvd.allreduce_(tensor, name=f"bytes.{tensor.numel() * 4}", op=hvd.Sum)
    return (time.perf_counter() - begin) / count * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", choices=("tutti", "horovod"), default="tutti")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--sizes", help="bytes, with commas between; default: 4 B to 8 MiB")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")] if options.sizes else SIZES
    hvd = importlib.import_module("tutti.horovod.torch" if options.library == "tutti" else "horovod.torch")
    hvd.init()
    torch.set_num_threads(1)
    if hvd.rank() == 0:
        print(f"{'bytes':>10} {'median us':>10} {'best us':>10}", flush=True)
    for size in sizes:
        tensor = torch.zeros(size // 4)
        time_calls(hvd, tensor, 1)  # the name becomes known
        rounds = [time_calls(hvd, tensor, calls_per_round(size)) for _ in range(options.rounds)]
        if hvd.rank() == 0:
            print(f"{size:10d} {statistics.median(rounds):10.1f} {min(rounds):10.1f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
