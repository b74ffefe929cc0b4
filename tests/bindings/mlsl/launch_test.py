"""MLSL programs as srun starts them (its variables, without Slurm), and on two nodes of a bed over tcp.

usage: launch_test.py {srun|nodes} LAUNCHER PROGRAM...; exit status 77 is "skipped". Each program is a rank of a job of 4.
"""

import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools", "cli"))
import testbed  # pylint: disable=wrong-import-position

SECONDS = 100
STARTED = "started, 4 ranks"  # without it each process would be a job of its own
SETTINGS = {"TUTTI_TRANSPORTS": "shm,tcp", "TUTTI_TIMEOUT": "60", "MLSL_LOG_LEVEL": "1"}
FOREIGN = ("TUTTI_", "SLURM_", "PMI", "OMPI_", "MLSL_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_")


def srun_variables(rank, tasks_of_nodes, hosts):
    """Of a step without PMI: `tasks_of_nodes[k]` ranks on node k, in order."""
    node = next(k for k in range(len(tasks_of_nodes)) if rank < sum(tasks_of_nodes[: k + 1]))
    size = str(sum(tasks_of_nodes))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return node, kept | {
        "SLURM_JOB_ID": str(os.getpid()),
        "SLURM_STEP_ID": "0",
        "SLURM_PROCID": str(rank),
        "SLURM_NTASKS": size,
        "SLURM_STEP_NUM_TASKS": size,
        "SLURM_NODEID": str(node),
        "SLURM_LOCALID": str(rank - sum(tasks_of_nodes[:node])),
        "SLURM_STEP_TASKS_PER_NODE": ",".join(map(str, tasks_of_nodes)),
        "SLURM_STEP_NODELIST": hosts,
        "TUTTI_SECRET": "s",
    } | SETTINGS


def expect_ranks(program, processes):
    for rank, process in enumerate(processes):
        text = process.communicate(timeout=SECONDS)[0]
        assert process.returncode == 0 and STARTED in text, f"{program}: rank {rank} of srun, {process.returncode}: {text}"


def srun(_launcher, programs):
    for program in programs:
        expect_ranks(program, [subprocess.Popen([program], env=srun_variables(rank, [4], "localhost")[1], stdout=subprocess.PIPE,
                                                stderr=subprocess.STDOUT, text=True) for rank in range(4)])


def nodes_of(bed, launcher, programs):
    agent = f"{sys.executable} {os.path.abspath(testbed.__file__)}"
    for program in programs:
        done = subprocess.run([launcher, "--agent", agent, "-H", "node0:2,node1:2", program], capture_output=True, text=True,
                              env={**os.environ, **SETTINGS}, timeout=SECONDS, check=False)
        assert done.returncode == 0 and STARTED in done.stderr, f"{program}: status {done.returncode}: {done.stdout}{done.stderr}"
        processes = []
        for rank in range(4):
            node, variables = srun_variables(rank, [2, 2], "node[0-1]")
            words = ["env", "-i"] + [f"{name}={value}" for name, value in variables.items()] + [program]
            processes.append(bed.popen(node, words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        expect_ranks(program, processes)


def nodes(launcher, programs):
    reason = testbed.why_unavailable()
    if reason:
        print("skipped: " + reason)
        sys.exit(77)
    sys.exit(testbed.run_in_bed(lambda bed: nodes_of(bed, launcher, programs), nodes=2))


if __name__ == "__main__":
    {"srun": srun, "nodes": nodes}[sys.argv[1]](os.path.abspath(sys.argv[2]), [os.path.abspath(program) for program in sys.argv[3:]])
