#!/usr/bin/env python3
"""Self-consistency of the collectives: none may be slower than others that could replace it, and none may have cliffs.

Runs `tutti bench` over several numbers of ranks and sizes, several rounds in turn, and compares medians. Every rank has a CPU: the time
of one call from a common start. Ranks outnumber the CPUs: back to back, which is fair there. What replaces a collective is timed as
a whole, one call after the other.
    replacement   allreduce <= reduce + broadcast        allgather <= gather + broadcast
                  reduce_scatter <= reduce + scatter     barrier <= allreduce of 4 bytes; each times --slack
    size step     time per byte of an allreduce <= 2 x that of a quarter of the size
    rank step     time of an allreduce over n + 1 ranks <= 2.5 x that over n, from 3 ranks on, size by size
A rank more brings at most its share of work and one hand-over more to everybody (4/3 of either from 3 to 4 ranks, less later);
the bound leaves as much again for a change of algorithm and for ranks that outnumber the CPUs. Below 3 ranks there is another
step: one rank talks to nobody, and two may be the last that have a CPU each.
Knows the tool's JSON only.
Usage: guidelines.py TUTTI [--ranks 2..8] [--slack 1.1] [--rounds 3] [--budget 0.1] [--last 64m] [--json FILE]
Prints a table; --json writes one object for each of its rows. Exit status: 0 all hold, 1 some do not, 2 wrong arguments.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile

FIRST, SMALL_LAST = 4, 64 << 10  # bytes; collectives that are only compared end at the second
SIZE_BOUND, RANK_BOUND = 2.0, 2.5
FIRST_RANK_STEP = 3
RULES = (("allreduce", "reduce + broadcast"), ("allgather", "gather + broadcast"), ("reduce_scatter", "reduce + scatter"))
CALLS = ("allreduce", "allgather", "reduce_scatter", "barrier", *(replacement for _, replacement in RULES))


def measure(tutti, calls, ranks, budget, last):
    """p50 in us by size in bytes: an allreduce at all powers of four, the others at every second one."""
    collective, _, then = calls.partition(" + ")
    is_stepped = calls == "allreduce"
    with tempfile.NamedTemporaryFile("r", suffix=".json") as result:
        command = [tutti, "bench", collective, "-n", str(ranks), "-b", str(FIRST), "-e", str(last if is_stepped else SMALL_LAST),
                   "-f", "4" if is_stepped else "16", "--budget", str(budget), "--json", result.name]
        if then:
            command += ["--then", then]
        if ranks > len(os.sched_getaffinity(0)):
            command.append("--b2b")
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return {row["bytes"]: row["p50_us"] for row in map(json.loads, result)}


def nearest(times, size):
    """Sizes of collectives with blocks are rounded up to whole elements for each rank."""
    return times[min(times, key=lambda have: abs(have - size))]


def row(check, ranks, size, what, value, bound, unit="us"):
    """`bound` is what `value` may be at most."""
    return {"check": check, "ranks": ranks, "bytes": size, "what": what, "value": value, "bound": bound, "unit": unit,
            "holds": value <= bound}


def check_replacements(times, ranks, slack):
    for size in sorted(times["reduce + broadcast"]):
        for left, right in RULES:
            yield row("replacement", ranks, size, f"{left} <= {right}", nearest(times[left], size), slack * nearest(times[right], size))
    least = times["allreduce"][min(times["allreduce"])]
    yield row("replacement", ranks, 0, f"barrier <= allreduce of {FIRST} B", times["barrier"][0], slack * least)


def check_sizes(times, ranks):
    sizes = sorted(times["allreduce"])
    for smaller, larger in zip(sizes, sizes[1:]):
        before, after = (1000 * times["allreduce"][size] / size for size in (smaller, larger))
        yield row("size step", ranks, larger, f"time per byte, from {smaller} B", after, SIZE_BOUND * before, "ns/B")


def check_ranks(fewer, more, ranks):
    """`ranks` is the larger number."""
    if ranks - 1 < FIRST_RANK_STEP:
        return
    for size in sorted(fewer["allreduce"]):
        yield row("rank step", ranks, size, f"allreduce, from {ranks - 1} ranks", nearest(more["allreduce"], size),
                  RANK_BOUND * fewer["allreduce"][size])


def measure_all(arguments, ranks):
    """Medians over the rounds, by collective and size."""
    rounds = []
    for turn in range(arguments.rounds):
        print(f"\r{ranks} ranks, round {turn + 1} of {arguments.rounds}   ", end="", file=sys.stderr, flush=True)
        rounds.append({c: measure(arguments.tutti, c, ranks, arguments.budget, arguments.last) for c in CALLS})
    return {c: {size: statistics.median(r[c][size] for r in rounds) for size in rounds[0][c]} for c in CALLS}


def print_row(found):
    size = f"{found['bytes']} B" if found["bytes"] else ""
    print(f"{found['ranks']} ranks  {'ok' if found['holds'] else 'BROKEN':<7}{found['check']:<12} {size:>11}  "
          f"{found['what']:<38}{found['value']:10.3g} {found['bound']:10.3g} {found['unit']}")


def rank_range(text):
    found = re.fullmatch(r"([1-9]\d*)(?:\.\.([1-9]\d*))?", text)
    if not found or int(found[2] or found[1]) < int(found[1]):
        raise argparse.ArgumentTypeError(f"'{text}' is neither a number nor a range such as 2..8")
    return range(int(found[1]), int(found[2] or found[1]) + 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tutti", help="the tool")
    parser.add_argument("--ranks", type=rank_range, default=rank_range("2..8"))
    parser.add_argument("--slack", type=float, default=1.1, help="of the replacements")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--budget", type=float, default=0.1, help="seconds for each size of each run")
    parser.add_argument("--last", default="64m", help="largest allreduce, as `tutti bench -e` takes it")
    parser.add_argument("--json", type=argparse.FileType("w"), help="one object for each row")
    arguments = parser.parse_args()
    broken, fewer = 0, None
    for ranks in arguments.ranks:
        times = measure_all(arguments, ranks)
        rows = [*check_replacements(times, ranks, arguments.slack), *check_sizes(times, ranks)]
        if fewer:
            rows += check_ranks(fewer, times, ranks)
        print("\r", end="", file=sys.stderr)
        for found in rows:
            broken += not found["holds"]
            print_row(found)
            if arguments.json:
                arguments.json.write(json.dumps(found) + "\n")
        fewer = times
    print(f"{broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
