#!/usr/bin/env python3
"""Runs parts of rank_program.py, or the page's program, as processes of a JAX job; a test per list of parts and number of ranks.

Knows processes and exit codes only. Skips (77) with the reason where JAX cannot be had.
usage: jax_test.py PARTS RANKS PYTHON      PYTHON: of a virtual environment with JAX, which tools/check makes
"""

import os
import socket
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAMS = {"page": "page_program.py"}  # of parts that have another than rank_program.py
SECONDS = 100  # no job takes that long, on a busy machine either


def why_unavailable(python):
    if not os.path.exists(python):
        return f"there is no {python}; tools/check makes it"
    probe = subprocess.run([python, "-c", "import jaxlib, tutti"], capture_output=True, text=True, timeout=SECONDS, check=False)
    return "" if probe.returncode == 0 else probe.stderr.strip().split("\n")[-1]


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parts, size, python = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    reason = why_unavailable(python)
    if reason:
        print("skipped: JAX is not tested: " + reason)
        sys.exit(77)
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}
    program, port = os.path.join(HERE, PROGRAMS.get(parts, "rank_program.py")), str(free_port())
    ranks = [
        subprocess.Popen([python, program, parts, str(rank), str(size), port], env=environment, stdin=subprocess.DEVNULL)
        for rank in range(size)
    ]
    end = time.monotonic() + SECONDS
    try:
        codes = [rank.wait(max(end - time.monotonic(), 0.1)) for rank in ranks]
    finally:
        for rank in ranks:
            if rank.poll() is None:
                rank.kill()
                rank.wait()
    if any(codes):
        sys.exit(f"exit codes of the ranks: {codes}")


if __name__ == "__main__":
    main()
