#!/usr/bin/env python3
"""Self-consistency of the collectives: none may be slower than others that could replace it.

Runs `tutti bench` back to back over several numbers of ranks and sizes, several rounds in turn, and compares medians:
    allreduce <= reduce + broadcast        allgather <= gather + broadcast
    reduce_scatter <= reduce + scatter     barrier <= allreduce of 4 bytes
and the time per byte of an allreduce may not rise more than twofold from one size to the next.
Knows the tool's JSON only.
Usage: guidelines.py TUTTI [--ranks 2..8] [--slack 1.1] [--rounds 3] [--budget 0.1]
Exit status: 0 all hold, 1 some do not, 2 wrong arguments.
"""
import argparse
import json
import statistics
import subprocess
import sys
import tempfile

SIZES = (4, 64 << 10)  # first and last; factor 16
COLLECTIVES = ("allreduce", "reduce", "broadcast", "allgather", "gather", "reduce_scatter", "scatter", "barrier")
RULES = (("allreduce", ("reduce", "broadcast")), ("allgather", ("gather", "broadcast")),
         ("reduce_scatter", ("reduce", "scatter")))


def measure(tutti, collective, ranks, budget):
    """p50 in us by size in bytes."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as result:
        command = [tutti, "bench", collective, "-n", str(ranks), "-b", str(SIZES[0]), "-e", str(SIZES[1]), "-f", "16",
                   "--b2b", "--budget", str(budget), "--json", result.name]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return {row["bytes"]: row["p50_us"] for row in map(json.loads, result)}


def nearest(times, size):
    """Sizes of collectives with blocks are rounded up to whole elements for each rank."""
    return times[min(times, key=lambda have: abs(have - size))]


def check(times, ranks, slack):
    """Yields (what, left, right, holds) for one number of ranks."""
    for size in sorted(times["allreduce"]):
        for left, right in RULES:
            mine, other = nearest(times[left], size), sum(nearest(times[c], size) for c in right)
            yield f"{left} <= {' + '.join(right)}, {size} B", mine, other, mine <= slack * other
    barrier, least = times["barrier"][0], times["allreduce"][min(times["allreduce"])]
    yield "barrier <= allreduce of 4 B", barrier, least, barrier <= slack * least
    sizes = sorted(times["allreduce"])
    for smaller, larger in zip(sizes, sizes[1:]):
        per_byte = [times["allreduce"][s] / s for s in (smaller, larger)]
        yield f"time per byte, {smaller} to {larger} B", per_byte[1], per_byte[0], per_byte[1] <= 2 * per_byte[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tutti", help="the tool")
    parser.add_argument("--ranks", default="2..8")
    parser.add_argument("--slack", type=float, default=1.1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=0.1, help="seconds for each size of each run")
    arguments = parser.parse_args()
    first, _, last = arguments.ranks.partition("..")
    broken = 0
    for ranks in range(int(first), int(last or first) + 1):
        rounds = []
        for turn in range(arguments.rounds):
            print(f"\r{ranks} ranks, round {turn + 1} of {arguments.rounds}   ", end="", file=sys.stderr, flush=True)
            rounds.append({c: measure(arguments.tutti, c, ranks, arguments.budget) for c in COLLECTIVES})
        times = {c: {size: statistics.median(r[c][size] for r in rounds) for size in rounds[0][c]} for c in COLLECTIVES}
        for what, left, right, holds in check(times, ranks, arguments.slack):
            broken += not holds
            print(f"{ranks} ranks  {'ok' if holds else 'BROKEN':<7} {what:<45} {left:10.3g} {right:10.3g}")
    print("", file=sys.stderr)
    print(f"{broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
