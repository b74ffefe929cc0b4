"""tutti.horovod.tensorflow, in an environment that has TensorFlow; tools/check makes it. Skips (77) with the reason where there is none.

usage: tensorflow_test.py PYTHON TUTTI RANKS PART
"""

import os
import subprocess
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tensorflow_program.py")


def main():
    python, tool, ranks, part = sys.argv[1:]
    if not os.path.exists(python):
        print(f"skipped: no TensorFlow: {python} is not there; tools/check makes it where pip can have tensorflow-cpu")
        sys.exit(77)
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run([tool, "run", "-n", ranks, python, PROGRAM, part], env=environment, timeout=280, check=False)
    sys.exit(1 if ended.returncode else 0)


if __name__ == "__main__":
    main()
