#!/usr/bin/env python3
"""Keeps how each test went in the runs of this clone, and prints which tests are flaky or slow. Knows Meson's test logs and one file.

usage: test_history.py add HISTORY BUILD LOG [VERSION]   adds a log (testlog*.json) of a build folder; VERSION: of the code that was tested
       test_history.py table HISTORY                     tests that both passed and failed with one version, that failed, and that were slow
       test_history.py flaky HISTORY                     only those of the first kind; the exit status is 1 if there are any

HISTORY has a line for each test of each run: build, test, result, seconds, version. It keeps the last 50 runs of a test.
"""

import argparse
import collections
import json
import os
import statistics
import sys

sys.dont_write_bytecode = True
import count_results  # noqa: E402

RUNS_KEPT = 50
SLOW_SECONDS = 5  # shorter runs are never called slow
SLOW_FACTOR = 3  # slow: so many times as long as the median of the test's other runs
ROWS_SHOWN = 20

Run = collections.namedtuple("Run", "build test result seconds version")


def read(path):
    """Returns the runs of a history, oldest first; a line that is cut off (a killed run) is left out."""
    runs = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            for line in file:
                fields = line.rstrip("\n").split("\t")
                if len(fields) == len(Run._fields):
                    runs.append(Run(fields[0], fields[1], fields[2], float(fields[3]), fields[4]))
    return runs


def write(path, runs):
    with open(path + ".new", "w", encoding="utf-8") as file:
        file.writelines("\t".join([run.build, run.test, run.result, f"{run.seconds:.2f}", run.version]) + "\n" for run in runs)
    os.replace(path + ".new", path)


def add(runs, build, log, version):
    """The history with the tests of a log; of each test the last RUNS_KEPT runs."""
    runs = runs + [Run(build, test["name"].split(" / ")[-1], test["result"], test.get("duration", 0), version)
                   for test in count_results.tests(log) if test["result"] not in count_results.SKIPPED]
    kept, number = [], collections.Counter()
    for run in reversed(runs):
        number[run.build, run.test] += 1
        if number[run.build, run.test] <= RUNS_KEPT:
            kept.append(run)
    return kept[::-1]


def has_failed(run):
    return run.result not in count_results.PASSED


def is_flaky(runs):
    """Did a test both pass and fail with one version of the code?"""
    outcomes = collections.defaultdict(set)
    for run in runs:
        outcomes[run.version].add(has_failed(run))
    return any(len(seen) == 2 for version, seen in outcomes.items() if version)


def slow_runs(runs):
    """Runs that took several times as long as the test usually does."""
    if len(runs) < 3:
        return []
    median = statistics.median(run.seconds for run in runs)
    return [run for run in runs if run.seconds > max(SLOW_SECONDS, SLOW_FACTOR * median)]


def by_test(runs):
    tests = collections.defaultdict(list)
    for run in runs:
        tests[run.build, run.test].append(run)
    return tests


def table(runs):
    """Yields the lines of the table; none if no test failed or was slow."""
    rows = []
    for (build, test), own in by_test(runs).items():
        failed, slow = sum(map(has_failed, own)), len(slow_runs(own))
        if failed or slow:
            kind = "flaky" if is_flaky(own) else "failed" if failed else "slow"
            rows.append((kind, failed, slow, len(own), statistics.median(r.seconds for r in own), max(r.seconds for r in own), f"{build} {test}"))
    rows.sort(key=lambda row: (("flaky", "failed", "slow").index(row[0]), -row[1], -row[2], row[-1]))
    if rows:
        yield "kind    failed   slow   runs  median s   most s  test"
    for kind, failed, slow, number, median, most, name in rows[:ROWS_SHOWN]:
        yield f"{kind:<7} {failed:6} {slow:6} {number:6} {median:9.1f} {most:8.1f}  {name}"
    if len(rows) > ROWS_SHOWN:
        yield f"and {len(rows) - ROWS_SHOWN} more"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["add", "table", "flaky"])
    parser.add_argument("history")
    parser.add_argument("build", nargs="?")
    parser.add_argument("log", nargs="?")
    parser.add_argument("version", nargs="?", default="")
    options = parser.parse_args()
    runs = read(options.history)
    if options.command == "add":
        with open(options.log, encoding="utf-8") as log:
            write(options.history, add(runs, options.build, log, options.version))
    elif options.command == "table":
        print("\n".join(table(runs)) or "no test failed or was slow")
    else:
        flaky = [f"{build} {test}" for (build, test), own in sorted(by_test(runs).items()) if is_flaky(own)]
        print("\n".join(flaky) or "no test is flaky")
        sys.exit(1 if flaky else 0)


if __name__ == "__main__":
    main()
