#!/usr/bin/env python3
"""The cost of a call from Python above the same call from C++: allreduces back to back, both in turn.

Knows the tool's JSON and the package. Usage: python_overhead.py TUTTI [-n RANKS] [--rounds 5]; the interpreter that runs this needs
numpy and the package (PYTHONPATH=build/bindings/python). Prints one line per size: us per call from C++, from Python in place and out
of place, and what Python adds to the first (each the best round of its kind).
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

SIZES = (4, 1024, 16384)  # bytes of float32
CALLS, BATCHES = 500, 20


def rank_main(path):
    """A rank: best mean of a batch, in us, for each size and kind; rank 0 writes them."""
    import numpy  # pylint: disable=import-outside-toplevel
    import tutti  # pylint: disable=import-outside-toplevel
    world = tutti.init()
    result = {}
    for size in SIZES:
        given, output = (numpy.zeros(size // 4, "float32") for _ in range(2))
        for kind, arguments in {"in place": (given,), "out of place": (given, output)}.items():
            best = float("inf")
            for _ in range(BATCHES):
                world.barrier()
                begin = time.perf_counter()
                for _ in range(CALLS):
                    world.allreduce(*arguments)
                best = min(best, (time.perf_counter() - begin) / CALLS * 1e6)
            result[f"{size} {kind}"] = best
    if world.rank == 0:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(result, file)


def measure(tutti, ranks, folder):
    path = os.path.join(folder, "result.json")
    subprocess.run([tutti, "run", "-n", str(ranks), "--bind", "core", sys.executable, __file__, "--rank", path], check=True)
    with open(path, encoding="utf-8") as file:
        result = json.load(file)
    for size in SIZES:
        subprocess.run([tutti, "bench", "allreduce", "-n", str(ranks), "-b", str(size), "-e", str(size), "--b2b", "--budget", "0.2",
                        "--json", path], check=True, stdout=subprocess.DEVNULL)
        with open(path, encoding="utf-8") as file:
            result[f"{size} C++"] = json.loads(file.readline())["p50_us"]
    return result


def main():
    if sys.argv[1:2] == ["--rank"]:
        return rank_main(sys.argv[2])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tutti")
    parser.add_argument("-n", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rounds = [measure(options.tutti, options.n, folder) for _ in range(options.rounds)]
    best = {key: min(r[key] for r in rounds) for key in rounds[0]}
    print(f"{options.n} ranks\n{'bytes':>7} {'C++':>8} {'in place':>9} {'added':>6} {'out of place':>13} {'added':>6}   us per call")
    for size in SIZES:
        plain, inside, outside = (best[f"{size} {kind}"] for kind in ("C++", "in place", "out of place"))
        print(f"{size:7} {plain:8.2f} {inside:9.2f} {inside - plain:6.2f} {outside:13.2f} {outside - plain:6.2f}")
    return None


if __name__ == "__main__":
    main()
