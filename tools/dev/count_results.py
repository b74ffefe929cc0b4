#!/usr/bin/env python3
"""Adds up Meson's test logs (testlog*.json, one JSON object per line) and prints "PASSED FAILED SKIPPED".
With --failed it prints the tests that failed instead, each with the end of what it wrote.
Knows only Meson's result words; a word it does not know counts as failed, so that nothing is lost silently."""

import argparse
import json
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP", "IGNORED"}


LINES_SHOWN = 40  # of what a failed test wrote


def count(lines):
    """Counts one log, given as an iterable of lines; returns (passed, failed, skipped)."""
    passed = failed = skipped = 0
    for test in tests(lines):
        if test["result"] in PASSED:
            passed += 1
        elif test["result"] in SKIPPED:
            skipped += 1
        else:
            failed += 1
    return passed, failed, skipped


def failures(lines):
    """The failed tests of one log, as text."""
    for test in tests(lines):
        if test["result"] in PASSED | SKIPPED:
            continue
        yield f"{test['name']}: {test['result']} after {test.get('duration', 0):.1f} s"
        written = (test.get("stdout", "") + test.get("stderr", "")).rstrip().split("\n")
        yield from ("    " + line for line in written[-LINES_SHOWN:])


def tests(lines):
    """The tests of one log, a dictionary each."""
    return (json.loads(line) for line in lines if line.strip())


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--failed", action="store_true")
    parser.add_argument("logs", nargs="*")
    arguments = parser.parse_args()
    totals = [0, 0, 0]
    for path in arguments.logs:
        with open(path, encoding="utf-8") as log:
            if arguments.failed:
                print(*failures(log), sep="\n")
            else:
                totals = [a + b for a, b in zip(totals, count(log))]
    if not arguments.failed:
        print(*totals)


if __name__ == "__main__":
    main()
