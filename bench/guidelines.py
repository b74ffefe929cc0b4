#!/usr/bin/env python3
"""Self-consistency of the collectives: none may be slower than others that could replace it, and none may have cliffs.

Runs `tutti bench` over several numbers of ranks and sizes, in rounds, and compares within each round what was measured one right after
the other, since machines change their speed within seconds; what counts is the median of these ratios. Every rank has a CPU: the time
of one call from a common start. Ranks outnumber the CPUs: back to back, which is fair there. What replaces a collective is timed as
a whole, one call after the other.
    replacement   allreduce <= reduce + broadcast        allgather <= gather + broadcast
                  reduce_scatter <= reduce + scatter     barrier <= allreduce of 4 bytes; each times --slack
    size step     time per byte of an allreduce <= 2 x that of a quarter of the size; where every rank has a CPU and this is too much,
                  <= what the bound of the roofline for a byte rises by
    rank step     time of an allreduce over n + 1 ranks <= 2.5 x that over n, from 3 ranks on, size by size
A rank more brings at most its share of work and one hand-over more to everybody (4/3 of either from 3 to 4 ranks, less later);
the bound leaves as much again for a change of algorithm and for ranks that outnumber the CPUs. Below 3 ranks there is another
step: one rank talks to nobody, and two may be the last that have a CPU each.
Knows the tool's JSON only.
Usage: guidelines.py TUTTI [--ranks 2..8] [--slack 1.1] [--rounds 5] [--budget 0.1] [--last 64m] [--json FILE]
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
# Compared values stand side by side.
CALLS = ("barrier", *(call for rule in RULES for call in rule))


def bench(tutti, words, field):
    """`field` by size in bytes."""
    with tempfile.NamedTemporaryFile("r", suffix=".json") as result:
        subprocess.run([tutti, "bench", *map(str, words), "--json", result.name], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        return {row["bytes"]: row[field] for row in map(json.loads, result)}


def have_a_cpu_each(ranks):
    return ranks <= len(os.sched_getaffinity(0))


def measure(arguments, calls, ranks):
    """p50 in us by size in bytes: an allreduce at all powers of four, the others at every second one."""
    collective, _, then = calls.partition(" + ")
    is_stepped = calls == "allreduce"
    words = [collective, "-n", ranks, "-b", FIRST, "-e", arguments.last if is_stepped else SMALL_LAST, "-f", 4 if is_stepped else 16,
             "--budget", arguments.budget]
    words += ["--then", then] if then else []
    words += [] if have_a_cpu_each(ranks) else ["--b2b"]
    return bench(arguments.tutti, words, "p50_us")


def measure_round(arguments, turn):
    """Times by number of ranks, collective and size."""
    times = {}
    for ranks in arguments.ranks:
        print(f"\rround {turn + 1} of {arguments.rounds}, {ranks} ranks   ", end="", file=sys.stderr, flush=True)
        times[ranks] = {calls: measure(arguments, calls, ranks) for calls in CALLS}
    return times


def nearest(times, size):
    """Sizes of collectives with blocks are rounded up to whole elements for each rank."""
    return times[min(times, key=lambda have: abs(have - size))]


def compare(rounds, left, right):
    """Medians of what `left` and `right` find in a round, and of their ratio."""
    pairs = [(left(times), right(times)) for times in rounds]
    return *(statistics.median(side) for side in zip(*pairs)), statistics.median(one / other for one, other in pairs)


def row(check, ranks, size, what, compared, bound, unit="us"):
    """`bound` is what the ratio may be at most."""
    value, reference, ratio = compared
    return {"check": check, "ranks": ranks, "bytes": size, "what": what, "value": value, "reference": reference, "unit": unit,
            "ratio": ratio, "bound": bound, "holds": ratio <= bound}


def check_replacements(rounds, ranks, slack):
    for size in sorted(rounds[0][ranks]["reduce + broadcast"]):
        for left, right in RULES:
            compared = compare(rounds, lambda t, c=left: nearest(t[ranks][c], size), lambda t, c=right: nearest(t[ranks][c], size))
            yield row("replacement", ranks, size, f"{left} <= {right}", compared, slack)
    compared = compare(rounds, lambda t: t[ranks]["barrier"][0], lambda t: t[ranks]["allreduce"][min(t[ranks]["allreduce"])])
    yield row("replacement", ranks, 0, f"barrier <= allreduce of {FIRST} B", compared, slack)


def roofline_rise(arguments, ranks, smaller, larger):
    """Growth of the bound of an allreduce per byte from one size to the other: the median of as many runs as there are rounds."""
    words = ["allreduce", "-n", ranks, "-b", smaller, "-e", larger, "-f", larger // smaller, "--roofline", "--budget", arguments.budget]
    runs = [bench(arguments.tutti, words, "bound_us") for _ in range(arguments.rounds)]
    return statistics.median(bounds[larger] / larger / (bounds[smaller] / smaller) for bounds in runs)


def check_sizes(arguments, rounds, ranks):
    sizes = sorted(rounds[0][ranks]["allreduce"])
    for smaller, larger in zip(sizes, sizes[1:]):
        compared = compare(rounds, lambda t: 1000 * t[ranks]["allreduce"][larger] / larger,
                           lambda t: 1000 * t[ranks]["allreduce"][smaller] / smaller)
        bound = SIZE_BOUND
        if compared[-1] > bound and have_a_cpu_each(ranks):
            bound = max(bound, roofline_rise(arguments, ranks, smaller, larger))
        yield row("size step", ranks, larger, f"time per byte, from {smaller} B", compared, bound, "ns/B")


def check_ranks(rounds, ranks):
    """From one rank less."""
    if ranks - 1 < FIRST_RANK_STEP or ranks - 1 not in rounds[0]:
        return
    for size in sorted(rounds[0][ranks]["allreduce"]):
        compared = compare(rounds, lambda t: t[ranks]["allreduce"][size], lambda t: t[ranks - 1]["allreduce"][size])
        yield row("rank step", ranks, size, f"allreduce, from {ranks - 1} ranks", compared, RANK_BOUND)


def print_row(found):
    size = f"{found['bytes']} B" if found["bytes"] else ""
    print(f"{found['ranks']} ranks  {'ok' if found['holds'] else 'BROKEN':<7}{found['check']:<12} {size:>11}  "
          f"{found['what']:<38}{found['value']:10.3g} {found['reference']:10.3g} {found['unit']:<5}"
          f"{found['ratio']:6.2f} of at most {found['bound']:.2f}")


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
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--budget", type=float, default=0.1, help="seconds for each size of each run")
    parser.add_argument("--last", default="64m", help="largest allreduce, as `tutti bench -e` takes it")
    parser.add_argument("--json", type=argparse.FileType("w"), help="one object for each row")
    arguments = parser.parse_args()
    rounds = [measure_round(arguments, turn) for turn in range(arguments.rounds)]
    print("\r", end="", file=sys.stderr)
    broken = 0
    for ranks in arguments.ranks:
        for found in (*check_replacements(rounds, ranks, arguments.slack), *check_sizes(arguments, rounds, ranks), *check_ranks(rounds, ranks)):
            broken += not found["holds"]
            print_row(found)
            if arguments.json:
                arguments.json.write(json.dumps(found) + "\n")
    print(f"{broken} broken")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
