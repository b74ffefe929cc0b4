"""The example that trains: one process and several ranks, with model partitions, reach equal losses. 77 (skipped) without the digits.

usage: digits_test.py LAUNCHER PROGRAM
"""

import glob
import gzip
import re
import subprocess
import sys
import tempfile

DIGITS = "/usr/lib/python3*/dist-packages/sklearn/datasets/data/digits.csv.gz"


def train(launcher, ranks, program, digits, model_partitions):
    command = [launcher, "--no-prefix", "-n", str(ranks), program, digits, str(model_partitions)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=100).stdout
    found = re.findall(r"epoch \d+: loss (\S+), (\S+) % right", output)
    assert len(found) == 8, output
    return [(float(loss), float(right)) for loss, right in found]


def main():
    launcher, program = sys.argv[1:]
    packed = glob.glob(DIGITS)
    if not packed:
        print("skipped: no digits (Debian: python3-sklearn)")
        sys.exit(77)
    with tempfile.NamedTemporaryFile(suffix=".csv") as digits:
        digits.write(gzip.open(packed[0]).read())
        digits.flush()
        alone = train(launcher, 1, program, digits.name, 1)
        assert alone[-1][0] < alone[0][0] / 3 and alone[-1][1] > 90, alone
        for ranks, model_partitions in ((2, 1), (2, 2), (4, 2)):
            together = train(launcher, ranks, program, digits.name, model_partitions)
            worst = max(abs(a[0] - b[0]) for a, b in zip(alone, together))
            assert worst < 0.002, f"{ranks} ranks, {model_partitions} model partitions: {together}; alone: {alone}"


if __name__ == "__main__":
    main()
