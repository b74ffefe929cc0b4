"""hvd.run(), ranks that are lost and replaced, hosts that change, the digits with 1, 2 and 4 ranks that share each batch (equal loss curves within 1e-5), and with bf16 on the wire.

usage: horovod_test.py --run TUTTI
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import numpy

import tutti.horovod as hvd
from tutti.horovod import elastic

HERE = os.path.dirname(os.path.abspath(__file__))
DIGITS = os.path.join(HERE, "..", "..", "..", "examples", "horovod", "digits.py")
PROGRAM = os.path.join(HERE, "torch_program.py")
NUMPY_PROGRAM = os.path.join(HERE, "numpy_program.py")

# Hosts are addresses of this machine, and nodes of their own, where ssh would be called.
ON_THIS_MACHINE = ["--agent", "sh -c 'TUTTI_NODE_ID=$0 exec sh -c \"$1\"'"]


def losses(tool, ranks):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "losses.json")
        subprocess.run([tool, "run", "-n", str(ranks), sys.executable, PROGRAM, "digits", file], check=True, timeout=200)
        with open(file, encoding="utf-8") as text:
            return json.load(text)


def train(tool, **variables):
    """(per cent of test images read right, the lines) of the example over messages, which alone are compressed."""
    environment = {**os.environ, "TUTTI_TRANSPORTS": "tcp", **variables}
    command = [tool, "run", "-n", "2", sys.executable, DIGITS, "--epochs", "8"]
    lines = subprocess.run(command, env=environment, check=True, timeout=200, stdout=subprocess.PIPE, text=True).stdout
    return float(re.search(r"([0-9.]+) % of", lines).group(1)), lines


def start_beside_missing_host(tool):
    """A host that does not answer at the start is left out if the others have enough slots."""
    agent = ["--agent", "sh -c 'test $0 != 127.0.0.4 || exit 255; TUTTI_NODE_ID=$0 exec sh -c \"$1\"'"]
    command = [tool, "run", "-n", "4", "-H", "127.0.0.2:2,127.0.0.4:2", *agent, "--no-prefix", "--min-np"]
    program = [sys.executable, "-c", "import tutti; print(tutti.init().size)"]
    environment = {**os.environ, "TUTTI_IFACE": "lo"}
    for least, status, output, said in (("2", 0, "2\n2\n", "starting without it"), ("3", 255, "", "the part on host 127.0.0.4")):
        job = subprocess.run([*command, least, *program], env=environment, check=False, timeout=60, capture_output=True, text=True)
        assert (job.returncode, job.stdout) == (status, output) and said in job.stderr, f"{job.returncode} {job.stdout} {job.stderr}"


def lose(tool, ranks, least, ranks_and_steps, hosts=(), **variables):
    """Ranks train; those that are named kill themselves, the others go on, and new ones take their places."""
    words = [str(ranks), str(least), *(f"{rank}:{step}" for rank, step in ranks_and_steps.items())]
    command = [tool, "run", "-n", str(ranks), *hosts, "--min-np", str(least), "--no-prefix", sys.executable, PROGRAM, "elastic", *words]
    job = subprocess.run(command, env={**os.environ, **variables}, check=False, timeout=200, stdout=subprocess.PIPE, text=True)
    first_ranks = [rank for rank in range(ranks) if rank not in ranks_and_steps] + [ranks - 1] * len(ranks_and_steps)
    expected = [f"{rank} went on as {place} of {ranks}" for place, rank in enumerate(first_ranks)]
    assert job.returncode == 0 and sorted(job.stdout.splitlines()) == sorted(expected), f"exit status {job.returncode}: {job.stdout}"


def change_hosts(tool, lists, more=()):
    """A script lists two slots, then three, then two. more: options."""
    with tempfile.TemporaryDirectory() as folder:
        hosts = os.path.join(folder, "hosts")
        with open(hosts, "w", encoding="utf-8") as file:
            file.write(lists[0] + "\n")
        options = ["--min-np", "1", "--max-np", "4", "--host-discovery-script", f"cat {hosts}", "--slots-per-host", "2", *more]
        command = [tool, "run", "-n", "2", *options, "--no-prefix", sys.executable, NUMPY_PROGRAM, "hosts", hosts, *lists[1:]]
        job = subprocess.run(command, env={**os.environ, "TUTTI_IFACE": "lo"}, check=False, timeout=200, stdout=subprocess.PIPE, text=True)
    expected = ["0 ended in a job of 2", "1 ended in a job of 2"]
    assert job.returncode == 0 and sorted(job.stdout.splitlines()) == expected, f"exit status {job.returncode}: {job.stdout}"


def sum_of_ranks(own):
    hvd.init()
    return int(hvd.allreduce(numpy.array([hvd.rank()]), op=hvd.Sum)[0]) + own


def lose_a_rank():
    """In an elastic job of two ranks, rank 1 kills itself once."""
    hvd.init()
    state = elastic.ObjectState(is_lost=False)

    @elastic.run
    def train(state):
        if not state.is_lost:
            state.is_lost = True
            state.commit()
            if hvd.rank() == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            hvd.barrier()
        while hvd.size() < 2:
            time.sleep(0.01)
            state.commit()

    train(state)
    place = (hvd.rank(), hvd.size())
    hvd.shutdown()
    return place


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True)
    tool = parser.parse_args().run
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(tool), os.environ["PATH"]])
    assert hvd.run(sum_of_ranks, args=(5,), np=3) == [8, 8, 8]
    assert hvd.run(lose_a_rank, np=2, min_np=1) == [(0, 2), (1, 2)]
    start_beside_missing_host(tool)
    lose(tool, 3, 2, {1: 7})
    lose(tool, 3, 3, {0: 7, 1: 18}, ["-H", "127.0.0.2:2,127.0.0.3", *ON_THIS_MACHINE], TUTTI_IFACE="lo")  # rank 0 twice
    change_hosts(tool, ["localhost", "localhost:3", "localhost:2"])
    # At first on one host, then on two, then on the other one and the first, each with one rank.
    change_hosts(tool, ["127.0.0.2", "127.0.0.2:2;127.0.0.3:1", "127.0.0.2:1;127.0.0.3:1"], ON_THIS_MACHINE)
    alone = losses(tool, 1)
    assert alone[-1] < 0.5 * alone[0], f"nothing was learned: {alone[0]} to {alone[-1]}"
    for ranks in (2, 4):
        worst = max(abs(a - b) for a, b in zip(alone, losses(tool, ranks)))
        assert worst <= 1e-5, f"{ranks} ranks: loss differs by {worst}"
        print(f"{ranks} ranks: loss differs by at most {worst:.1e}")
    full, full_lines = train(tool)
    assert full > 90, full_lines
    for variables in {"TUTTI_WIRE_DTYPE": "bf16:all"}, {"TUTTI_WIRE_DTYPE": "bf16:all", "TUTTI_ERROR_FEEDBACK": "1"}:
        rounded, lines = train(tool, **variables)
        assert lines != full_lines, "nothing was rounded"
        assert abs(rounded - full) <= 0.5, f"{full} % in full, {rounded} % with {variables}"
        print(f"{full} % read right in full, {rounded} % with {variables}")


if __name__ == "__main__":
    main()
