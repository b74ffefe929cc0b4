#!/usr/bin/env python3
"""Tests of `tutti top`: what ranks do while they run, and while one of them is late.

Usage: top_test.py TUTTI PROGRAM, where PROGRAM is recorded_program.
"""
import json
import os
import subprocess
import sys
import tempfile
import time

from doctor_test import Job, SECONDS, expect

tutti = sys.argv[1]


def top(job, *words):
    return subprocess.run([tutti, "top", *words], capture_output=True, text=True, check=False, timeout=SECONDS, env=job.environment)


def snapshot_where(job, holds, what):
    """A snapshot for which the condition holds."""
    deadline = time.monotonic() + SECONDS
    snapshot = None
    while time.monotonic() < deadline:
        result = top(job, job.folder, "--json", "--interval", "0.05")
        if result.returncode == 0 and result.stdout:
            snapshot = json.loads(result.stdout)
            if holds(snapshot):
                return snapshot
        time.sleep(0.02)
    expect(False, what, str(snapshot))
    return None


def test_late_rank(folder):
    def waits(snapshot):
        operations = {r["rank"]: r["groups"][0]["operation"] for r in snapshot["ranks"]}
        return (len(operations) == 3 and operations[1] is None and all(operations[r] and operations[r]["phase"] == "waits" for r in (0, 2)))

    with Job(folder, "absent") as job:
        snapshot = snapshot_where(job, waits, "ranks 0 and 2 wait, rank 1 does nothing")
        for rank in (0, 2):
            operation = snapshot["ranks"][rank]["groups"][0]["operation"]
            expect(operation["call"] == "allreduce of 2 f32, sum" and operation["number"] == 302, "the call", str(operation))
            # Which of the two others it awaits first depends on the algorithm.
            expect(operation["awaited_rank"] in (0, 1, 2) and operation["age_us"] > 0, "for whom and since when", str(operation))
        expect(snapshot["ranks"][0]["cpus"] is not None, "the CPUs of a rank", str(snapshot))
        job.environment["TUTTI_RECORDER"] = "off"  # the folder is given
        table = top(job, job.folder, "--once", "--interval", "0.05").stdout
        expect("allreduce of 2 f32, sum (number 302) waits for rank" in table, "the table", table)


def test_rates(folder):
    def moves(snapshot):
        return len(snapshot["ranks"]) == 3 and all(r["groups"][0]["calls_per_s"] > 0 and r["groups"][0]["bytes_per_s"] > 0
                                                   for r in snapshot["ranks"])

    with Job(folder, "busy", TUTTI_CONTROL_BLOCKS="off") as job:
        snapshot = snapshot_where(job, moves, "ranks make calls")
        expect(all(list(r["transport_bytes_per_s"]) == ["shm"] for r in snapshot["ranks"]), "bytes by transport", str(snapshot))
        expect(job.process.poll() is None, "the job goes on")


def test_nothing(folder):
    with Job(folder, "none") as job:
        job.wait()
        result = top(job, job.folder)
        expect(result.returncode == 2 and "no record of a rank" in result.stderr, "no job", result.stderr)
        result = top(job, job.folder, "--interval", "0")
        expect(result.returncode == 2 and "--interval" in result.stderr, "a bad interval", result.stderr)
    with Job(folder, "killed") as job:
        job.wait()
        result = top(job, job.folder)
        expect(result.returncode == 2 and "no rank of job" in result.stderr, "a job that has ended", result.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for test in (test_late_rank, test_rates, test_nothing):
            base = os.path.join(folder, test.__name__)
            os.mkdir(base)
            test(base)
            print("passed:", test.__name__, flush=True)


main()
