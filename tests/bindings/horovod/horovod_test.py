"""hvd.run(), and the digits with 1, 2 and 4 ranks that share each batch: equal loss curves within 1e-5. usage: horovod_test.py --run TUTTI"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import numpy

import tutti.horovod as hvd

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_program.py")


def losses(tool, ranks):
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "losses.json")
        subprocess.run([tool, "run", "-n", str(ranks), sys.executable, PROGRAM, "digits", file], check=True, timeout=200)
        with open(file, encoding="utf-8") as text:
            return json.load(text)


def sum_of_ranks(own):
    hvd.init()
    return int(hvd.allreduce(numpy.array([hvd.rank()]), op=hvd.Sum)[0]) + own


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", required=True)
    tool = parser.parse_args().run
    os.environ["PATH"] = os.pathsep.join([os.path.dirname(tool), os.environ["PATH"]])
    assert hvd.run(sum_of_ranks, args=(5,), np=3) == [8, 8, 8]
    alone = losses(tool, 1)
    assert alone[-1] < 0.5 * alone[0], f"nothing was learned: {alone[0]} to {alone[-1]}"
    for ranks in (2, 4):
        worst = max(abs(a - b) for a, b in zip(alone, losses(tool, ranks)))
        assert worst <= 1e-5, f"{ranks} ranks: loss differs by {worst}"
        print(f"{ranks} ranks: loss differs by at most {worst:.1e}")


if __name__ == "__main__":
    main()
