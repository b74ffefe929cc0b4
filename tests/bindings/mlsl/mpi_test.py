"""Runs programs that use MLSL and MPI under an MPI library's launcher. Exit status 77 (skipped) where it is not installed.

usage: mpi_test.py {openmpi|mpich} PROGRAM CAFFE_PROGRAM
"""

import os
import shutil
import subprocess
import sys

LAUNCHERS = {
    "openmpi": ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "self,vader", "-n"],
    "mpich": ["mpiexec.hydra", "-n"],
}


def main():
    library, program, caffe_program = sys.argv[1:]
    command = LAUNCHERS[library]
    if shutil.which(command[0]) is None:
        print(command[0] + " is not installed")
        sys.exit(77)
    # The document's settings: two progress threads for each process, and threads that OpenMP binds.
    document = {
        "MLSL_NUM_SERVERS": "2",
        "MLSL_SERVER_AFFINITY": "0,1,12,13",
        "OMP_NUM_THREADS": "6",
        "KMP_AFFINITY": "granularity=fine,compact,1,0",
        "KMP_BLOCKTIME": "1",
        "KMP_SETTINGS": "1",
    }
    for when, variables in {"before": {}, "never": document, "after": {"MLSL_INIT_MPI": "0"}}.items():
        done = subprocess.run(
            command + ["2", program, when], env={**os.environ, **variables}, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{when}: status {done.returncode}: {done.stdout}{done.stderr}"
        # A machine may lack CPU 12 or 13. All else is taken without a word.
        messages = [line for line in done.stderr.splitlines() if "MLSL" in line and "ignored: MLSL_SERVER_AFFINITY: " not in line]
        assert not messages, f"{when}: {messages}"
    done = subprocess.run(command + ["4", caffe_program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"Caffe's calls: status {done.returncode}: {done.stdout}{done.stderr}"


if __name__ == "__main__":
    main()
