#!/usr/bin/env python3
"""tools/dev/many-core-check with a program in tutti's place: what it asks for, and its report. Knows no measurement.

usage: many_core_check_test.py MANY_CORE_CHECK
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

# Says which helpers and pinning it was given; a broadcast is wrong where the file `wrong` lies beside it.
PROGRAM = """#!/bin/sh
[ "$1" = info ] && exit 0
for last; do :; done
collective=$2
while [ "$1" != -n ]; do shift; done
wrong=0
[ "$collective" = broadcast ] && [ -e "$(dirname "$0")/wrong" ] && wrong=3
cat >"$last" <<END
{"library": "tutti", "collective": "$collective", "bytes": 8, "ranks": $2, "p50_us": 0.5, "algorithm": "$TUTTI_PIN/$TUTTI_HELPERS", "wrong": $wrong, "best_peer": "mpich5", "ratio": 2.0}
{"library": "mpich5", "collective": "$collective", "bytes": 8, "ranks": $2, "p50_us": 1.0, "algorithm": "default", "wrong": 0}
END
"""


def expect(condition, what):
    if not condition:
        sys.exit(f"many_core_check_test: {what}")


def run(tree, folder):
    """From another folder, with an empty environment. Returns the exit status and the report."""
    done = subprocess.run(
        [sys.executable, str(tree / "many-core-check"), "--ranks", "2,5"],
        cwd=folder,
        env={},
        check=False,
        timeout=300,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    report = folder / "many-core-report" / "report.json"
    expect(report.is_file(), f"no report: {done.stdout}")
    return done.returncode, json.loads(report.read_text(encoding="utf-8")), done.stdout


def main():
    with tempfile.TemporaryDirectory() as scratch:
        tree, folder = pathlib.Path(scratch) / "tree", pathlib.Path(scratch) / "elsewhere"
        (tree / "bin").mkdir(parents=True)
        folder.mkdir()
        for name in ("many-core-check", "machine_check.py"):
            shutil.copy(pathlib.Path(sys.argv[1]).parent / name, tree / name)
        program = tree / "bin" / "tutti"
        program.write_text(PROGRAM, encoding="utf-8")
        program.chmod(0o755)
        status, report, text = run(tree, folder)
        expect(status == 0 and report["verdict"].startswith("passed, without times of openmpi5;"), f"verdict: {report['verdict']}: {text}")
        rows = [row for row in report["rows"] if row["library"] == "tutti"]
        expect([row["ranks"] for row in rows if row["kind"] == "allreduce"] == [2, 5], f"ranks: {rows}")
        helpers = [row for row in rows if row["kind"] == "helpers"]
        expect(helpers and all(row["algorithm"] == f"auto/{row['helpers']}" for row in helpers), f"helpers: {helpers}")
        cores = len(os.sched_getaffinity(0))
        expect(all(row["helpers"] == "auto" or row["ranks"] * (1 + int(row["helpers"])) <= cores for row in helpers), f"cores: {helpers}")
        expect("allreduce, 5 ranks: geometric mean 2.00, lowest 2.00" in text, text)
        expect("(2 of about" in text and "minutes left)" in text, text)
        (tree / "bin" / "wrong").touch()
        status, report, _ = run(tree, folder)
        expect(status == 1 and report["verdict"] == "failed: 3 wrong elements", f"wrong elements: {report['verdict']}")


if __name__ == "__main__":
    main()
