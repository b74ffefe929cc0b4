#!/usr/bin/env python3
"""Adds up Meson's test logs (testlog*.json, one JSON object per line) and prints "PASSED FAILED SKIPPED".
Knows only Meson's result words; a word it does not know counts as failed, so that nothing is lost silently."""

import json
import sys

PASSED = {"OK", "EXPECTEDFAIL"}
SKIPPED = {"SKIP", "IGNORED"}


def count(lines):
    """Counts one log, given as an iterable of lines; returns (passed, failed, skipped)."""
    passed = failed = skipped = 0
    for line in lines:
        if not line.strip():
            continue
        result = json.loads(line)["result"]
        if result in PASSED:
            passed += 1
        elif result in SKIPPED:
            skipped += 1
        else:
            failed += 1
    return passed, failed, skipped


def main():
    totals = [0, 0, 0]
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as log:
            totals = [a + b for a, b in zip(totals, count(log))]
    print(*totals)


if __name__ == "__main__":
    main()
