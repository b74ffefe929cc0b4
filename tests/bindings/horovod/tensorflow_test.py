"""tutti.horovod.tensorflow, in an environment that has TensorFlow; tools/check makes it. Skips (77) with the reason where there is none.

usage: tensorflow_test.py PYTHON TUTTI RANKS PART
"""

import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "tensorflow_program.py")
EXAMPLES = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(HERE))), "examples", "horovod")


def run(python, tool, ranks, program, *arguments):
    """Runs it as a job. Returns what it prints."""
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    command = [tool, "run", "-n", str(ranks), python, program, *arguments]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, timeout=280, check=False)
    print(ended.stdout)
    if ended.returncode:
        sys.exit(f"{' '.join(command)}: exit status {ended.returncode}")
    return ended.stdout


def number(pattern, text):
    found = re.search(pattern, text)
    if not found:
        sys.exit(f"nothing is like {pattern}")
    return float(found[1])


def check_examples(python, tool):
    """The mean of two ranks' gradients, each of half of the points, is one rank's of all points."""
    program = os.path.join(EXAMPLES, "approximation_tensorflow.py")
    alone, shared = [
        number(r"largest error ([0-9.]+)", run(python, tool, ranks, program, "--problem", "pinn", "--steps", "20")) for ranks in (1, 2)
    ]
    if abs(alone - shared) > 1e-4:
        sys.exit(f"largest errors {alone} and {shared} of one and of two ranks")
    with tempfile.TemporaryDirectory() as folder:
        text = run(python, tool, 2, os.path.join(EXAMPLES, "lenet_tensorflow.py"), "--steps", "160", "--checkpoints", folder)
        if number(r"last batch ([0-9.]+)", text) < 0.5:
            sys.exit("nothing was learned")
        if not os.path.exists(os.path.join(folder, "checkpoint")):
            sys.exit("rank 0 has written no checkpoint")


def main():
    python, tool, ranks, part = sys.argv[1:]
    if not os.path.exists(python):
        print(f"skipped: no TensorFlow: {python} is not there; tools/check makes it where pip can have tensorflow-cpu")
        sys.exit(77)
    if part == "examples":
        check_examples(python, tool)
    else:
        run(python, tool, ranks, PROGRAM, part)


if __name__ == "__main__":
    main()
