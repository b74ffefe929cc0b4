"""tutti.horovod.keras on one backend, in an environment that tools/check makes. Skips (77) with the reason where there is none.

usage: keras_test.py PYTHON BACKEND TUTTI RANKS
"""

import os
import subprocess
import sys

PROGRAM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "keras_program.py")


def main():
    python, backend, tool, ranks = sys.argv[1:]
    environment = {**os.environ, "KERAS_BACKEND": backend, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": ""}
    found = os.path.exists(python) and subprocess.run([python, "-c", "import keras"], env=environment, capture_output=True, check=False)
    if not found or found.returncode:
        print(f"skipped: no Keras with {backend}: {python} has none; tools/check installs it where pip can have keras and {backend}")
        sys.exit(77)
    ended = subprocess.run([tool, "run", "-n", ranks, python, PROGRAM], env=environment, timeout=280, check=False)
    sys.exit(1 if ended.returncode else 0)


if __name__ == "__main__":
    main()
