"""Mistakes of MLSL programs: each ends the job with a message and status 1, on 2 ranks.

usage: mistakes_test.py LAUNCHER PROGRAM
"""

import os
import subprocess
import sys

MESSAGES = {
    "before_init": "GetProcessIdx: call Environment::Init first",
    "no_minibatch": "conv1: call SetGlobalMinibatchSize before operations are added",
    "minibatch": "conv1: a global mini-batch of 3 does not divide by 2 data partitions",
    "division": "3 data times 1 model partitions are not from 1 to 2 processes",
    "no_partition": "1 data times 0 model partitions are not from 1 to 2 processes",
    "no_maps": "conv1: AddInput of 0 times 4 elements; both numbers must be from 1 to 2147483647",
    "map_size": "conv1: AddOutput of 4 times 2147483648 elements",
    "no_kernels": "conv1: AddParameterSet of 4 times 0 elements",
    "elements": "conv1 to conv1: the output has 6 feature maps of 2 elements, the input 5 of 2; numbers of elements and data types",
    "unit": "conv1 to conv1: the output has 6 feature maps of 2 elements, the input 4 of 3; the size of one must be a multiple",
    "no_buffer": "conv1: StartGradientComm: the buffer is null",
    "second_start": "conv1: StartGradientComm was started again before its wait",
    "color": "'color=one': expected \"color=N\" with N from 0",
    "second_init": "Init was called twice",
    "root": "Bcast: broadcast: root: 2 is no rank of the group; expected 0 to 1",
    "one_rank": "session: operation 5 does not exist; there are 0",
    "library": "SetQuantizationParams: none.so",
}


def run(launcher, program, mistake, **variables):
    return subprocess.run([launcher, "-n", "2", program, mistake], env={**os.environ, **variables}, capture_output=True, text=True,
                          timeout=60, check=False)


def main():
    launcher, program = sys.argv[1:]
    for mistake, message in MESSAGES.items():
        done = run(launcher, program, mistake)
        assert done.returncode == 1, f"{mistake}: status {done.returncode}: {done.stderr}"
        assert "mlsl: rank " in done.stderr and message in done.stderr, f"{mistake}: {done.stderr}"
    done = run(launcher, program, "unknown_configuration")
    assert done.returncode == 0 and done.stderr.count("warning: Configure: 'colour=1' has no effect") == 2, done.stderr
    done = run(launcher, program, "none", MLSL_STATS="perhaps")
    assert done.returncode == 1 and "MLSL_STATS='perhaps': expected a number from 0 to 1" in done.stderr, done.stderr


if __name__ == "__main__":
    main()
