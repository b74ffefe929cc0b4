#!/usr/bin/env python3
"""hvd.allreduce in tf.function, by tutti.horovod.tensorflow or by Horovod, and tf.identity in its place, in turn.

Knows Horovod's interface only. Usage, with TensorFlow installed and the package installed or on PYTHONPATH:
    tutti run -n 2 python3 bench/tensorflow_allreduce.py [--library horovod] [--rounds 15] [--sizes 4,4096] [--mode graph]
Prints a line per size: us per call of tf.identity and of hvd.allreduce (each the median of its rounds on rank 0), and their difference.
"""

import argparse
import importlib
import statistics
import time

import tensorflow as tf

SIZES = (4, 1 << 12, 1 << 20, 1 << 23)  # bytes of float32


def calls_per_round(size):
    return max(3, min(200, (1 << 23) // size))


def time_calls(function, tensor, count):
    begin = time.perf_counter()
    for _ in range(count):
        function(tensor)
    return (time.perf_counter() - begin) / count * 1e6


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", choices=("tutti", "horovod"), default="tutti")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--sizes", help="bytes, with commas between; default: 4 B to 8 MiB")
    parser.add_argument("--mode", choices=("graph", "eager"), default="graph")
    options = parser.parse_args()
    sizes = [int(size) for size in options.sizes.split(",")] if options.sizes else SIZES
    # Ranks of one machine share its CPUs.
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(2)
    hvd = importlib.import_module("tutti.horovod.tensorflow" if options.library == "tutti" else "horovod.tensorflow")
    hvd.init()
    wrap = tf.function if options.mode == "graph" else lambda function: function
    if hvd.rank() == 0:
        print(f"{'bytes':>10} {'identity us':>12} {'allreduce us':>12} {'difference':>12}", flush=True)
    for size in sizes:
        tensor = tf.zeros([size // 4])
        functions = {
            "identity": wrap(tf.identity),
            "allreduce": wrap(lambda x, size=size: hvd.allreduce(x, op=hvd.Sum, name=f"bytes.{size}")),
        }
        times = {name: [] for name in functions}
        for name, function in functions.items():
            time_calls(function, tensor, 30)  # traces it, and the name becomes known
        for _ in range(options.rounds):
            for name, function in functions.items():
                hvd.allreduce(tf.zeros(1), name="barrier")
                times[name].append(time_calls(function, tensor, calls_per_round(size)))
        identity, allreduce = (statistics.median(of_rounds) for of_rounds in times.values())
        if hvd.rank() == 0:
            print(f"{size:10d} {identity:12.1f} {allreduce:12.1f} {allreduce - identity:12.1f}", flush=True)
    hvd.shutdown()


if __name__ == "__main__":
    main()
