#!/usr/bin/env python3
"""lax.psum between JAX processes on CPUs, over tutti and over gloo: jobs of two processes, in turn.

Knows JAX's public interface only. Usage, with JAX installed and tutti installed or on PYTHONPATH:
    python3 bench/jax_allreduce.py [--jobs 3] [--rounds 9] [--sizes 4096,1048576]
Prints a line per size: us per call over tutti and over gloo (each the median of its rounds in all jobs), and their ratio.
"""

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time

SIZES = tuple(1 << exponent for exponent in range(12, 27, 2))  # bytes of float32: 4 KiB to 64 MiB
RANKS = 2


def calls_per_round(size):
    return max(3, min(200, (1 << 23) // size))


def time_calls(function, array, count):
    begin = time.perf_counter()
    for _ in range(count):
        function(array).block_until_ready()
    return (time.perf_counter() - begin) / count * 1e6


def run_rank(rank, port, over, options):
    """Rank 0 prints {size: [us per call of each round]}."""
    if over == "tutti":
        import tutti.jax  # pylint: disable=import-outside-toplevel  # before jax

        tutti.jax.install()
    import jax  # pylint: disable=import-outside-toplevel
    import numpy  # pylint: disable=import-outside-toplevel
    from jax.sharding import NamedSharding, PartitionSpec  # pylint: disable=import-outside-toplevel

    jax.distributed.initialize(f"127.0.0.1:{port}", RANKS, rank)
    mesh = jax.make_mesh((RANKS,), ("d",))
    spec = PartitionSpec("d")
    psum = jax.jit(jax.shard_map(lambda x: jax.lax.psum(x, "d"), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False))
    times = {}
    for size in options.sizes:
        array = jax.make_array_from_process_local_data(NamedSharding(mesh, spec), numpy.ones(size // 4, "float32"))
        time_calls(psum, array, 2)  # compiles it
        times[size] = [time_calls(psum, array, calls_per_round(size)) for _ in range(options.rounds)]
    if rank == 0:
        print(json.dumps(times), flush=True)


def run_job(over, arguments):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "JAX_CPU_COLLECTIVES_IMPLEMENTATION": "gloo"}
    ranks = [
        subprocess.Popen(
            [sys.executable, __file__, *arguments, "--rank", str(rank), "--port", str(port), "--over", over],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    outputs = [rank.communicate()[0] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        sys.exit(f"{over}: exit codes {[rank.returncode for rank in ranks]}")
    return {int(size): rounds for size, rounds in json.loads(outputs[0].splitlines()[-1]).items()}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=3, help="of each kind")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument(
        "--sizes", type=lambda text: [int(size) for size in text.split(",")], default=SIZES, help="bytes, with commas between"
    )
    for name, kind in (("--rank", int), ("--port", int), ("--over", str)):
        parser.add_argument(name, type=kind, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.over:
        run_rank(options.rank, options.port, options.over, options)
        return
    times = {over: {size: [] for size in options.sizes} for over in ("tutti", "gloo")}
    for _ in range(options.jobs):
        for over, of_sizes in times.items():
            for size, rounds in run_job(over, sys.argv[1:]).items():
                of_sizes[size] += rounds
    print(f"{'bytes':>10} {'tutti us':>10} {'gloo us':>10} {'gloo/tutti':>10}")
    for size in options.sizes:
        ours, gloo = (statistics.median(times[over][size]) for over in ("tutti", "gloo"))
        print(f"{size:10d} {ours:10.1f} {gloo:10.1f} {gloo / ours:10.2f}")


if __name__ == "__main__":
    main()
