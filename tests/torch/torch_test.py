#!/usr/bin/env python3
"""Runs one part of rank_program.py as the ranks of a job; a test per part and number of ranks.

Knows processes and exit codes only. Skips (77) with the reason where tutti.torch cannot be had.
usage: torch_test.py PART RANKS          with tutti on PYTHONPATH; some parts are started by torchrun
"""
import os
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "rank_program.py")
SECONDS = 150  # no job takes that long, on a busy machine either
UNDER_TORCHRUN = ("readme", "page")  # what the pages show
DIES = {"death": {2: -9}}  # part -> rank -> the exit code that it is meant to have


def why_unavailable():
    probe = subprocess.run([sys.executable, "-c", "import tutti.torch"], capture_output=True, text=True, timeout=SECONDS, check=False)
    return "" if probe.returncode == 0 else probe.stderr.strip().split("\n")[-1]


def start_rank(part, rank, size, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, PROGRAM, part, str(rank), str(size), os.path.join(folder, "store")]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)


def run(part, size):
    """The ranks that did not end as they should, with their exit codes."""
    deadline = time.monotonic() + SECONDS
    with tempfile.TemporaryDirectory() as folder:
        ranks = [start_rank(part, rank, size, folder) for rank in range(size)]
        try:
            codes = [process.wait(max(deadline - time.monotonic(), 0.1)) for process in ranks]
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                    process.wait()
    expected = [DIES.get(part, {}).get(rank, 0) for rank in range(size)]
    return [f"rank {rank}: exit code {codes[rank]}, expected {expected[rank]}" for rank in range(size) if codes[rank] != expected[rank]]


def run_under_torchrun(part, size):
    # 1.13 knows this spelling only, and on Python 3.11 it needs to be told what to do with the output.
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", str(size), "--standalone", "-r", "1", "-t", "1"]
    done = subprocess.run([sys.executable, *launcher, PROGRAM, part], stdin=subprocess.DEVNULL, timeout=SECONDS, check=False)
    return [] if done.returncode == 0 else [f"torchrun: exit code {done.returncode}"]


def main():
    part, size = sys.argv[1], int(sys.argv[2])
    reason = why_unavailable()
    if reason:
        print("skipped: " + reason)
        sys.exit(77)
    wrong = run_under_torchrun(part, size) if part in UNDER_TORCHRUN else run(part, size)
    if wrong:
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
