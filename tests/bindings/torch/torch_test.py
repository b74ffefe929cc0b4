#!/usr/bin/env python3
"""Runs one part of rank_program.py or of another program beside it as the ranks of a job; a test per part and number of ranks.

Knows processes and exit codes only. Skips (77) with the reason where tutti.torch cannot be had.
usage: torch_test.py PART RANKS          with tutti on PYTHONPATH; some parts are started by torchrun
       torch_test.py pip PYTHON --wheels FOLDER [--cxx C] [--meson V] [--werror true] [--cuda-stand-in LIBRARY --cuda-include FOLDER]
                                         installs tutti beside the torch of a virtual environment, and runs all parts there,
                                         the one on devices where it has the stand-in for CUDA's driver
       torch_test.py wheel PYTHON ...    only makes what is installed, so that it can be done when others build
"""
import argparse
import importlib.metadata
import os
import shlex
import socket
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
PROGRAM = os.path.join(HERE, "rank_program.py")
HOROVOD_PROGRAM = os.path.join(os.path.dirname(HERE), "horovod", "torch_program.py")
PROGRAMS = {  # of parts that have another
    "examples": os.path.join(HERE, "examples_program.py"),
    "death": os.path.join(HERE, "failure_program.py"),
    "device": os.path.join(HERE, "device_program.py"),
    "entry": os.path.join(HERE, "entry_program.py"),
    "edges": os.path.join(HERE, "edge_program.py"),
    "life": os.path.join(HERE, "life_program.py"),
    "record": os.path.join(HERE, "failure_program.py"),
    "memory": os.path.join(HERE, "life_program.py"),
    "again": os.path.join(HERE, "life_program.py"),
    "again_at_port": os.path.join(HERE, "life_program.py"),
    "forks": os.path.join(HERE, "fork_program.py"),
    "timeout": os.path.join(HERE, "failure_program.py"),
}
SECONDS = 150  # no job takes that long, on a busy machine either
UNDER_TORCHRUN = ("readme", "page")  # what the pages show
DIES = {"death": {0: -9, 2: -9}, "record": {0: -9, 1: -9}}  # part -> rank -> the exit code that it is meant to have


def why_unavailable(module):
    probe = subprocess.run([sys.executable, "-c", "import " + module], capture_output=True, text=True, timeout=SECONDS, check=False)
    return "" if probe.returncode == 0 else probe.stderr.strip().split("\n")[-1]


def start_rank(part, rank, size, folder):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    command = [sys.executable, PROGRAMS.get(part, PROGRAM), part, str(rank), str(size), os.path.join(folder, "store")]
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)


def run(part, size):
    """The ranks that did not end as they should, with their exit codes."""
    deadline = time.monotonic() + SECONDS
    with tempfile.TemporaryDirectory() as folder:
        ranks = [start_rank(part, rank, size, folder) for rank in range(size)]
        try:
            codes = [process.wait(max(deadline - time.monotonic(), 0.1)) for process in ranks]
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                    process.wait()
    expected = [DIES.get(part, {}).get(rank, 0) for rank in range(size)]
    return [f"rank {rank}: exit code {codes[rank]}, expected {expected[rank]}" for rank in range(size) if codes[rank] != expected[rank]]


def run_under_torchrun(part, size, program=PROGRAM):
    # 1.13 knows this spelling only, and on Python 3.11 it needs to be told what to do with the output. It looks every 5 s for ranks that ended.
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", str(size), "--standalone", "-r", "1", "-t", "1", "--monitor_interval", "0.1"]
    done = subprocess.run([sys.executable, *launcher, program, part], stdin=subprocess.DEVNULL, timeout=SECONDS, check=False)
    return [] if done.returncode == 0 else [f"torchrun: exit code {done.returncode}"]


def run_survivors(size=4):
    """With an agent of torchrun for each rank: an agent ends its other ranks when one dies. The agents of survivors wait 5 minutes for the lost one."""
    print(f"survivors of {size} ranks", flush=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(size), "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", port]
    with tempfile.TemporaryDirectory() as folder:
        program = [os.path.join(HERE, "survive_program.py"), folder]
        agents = [subprocess.Popen([*launcher, "--node-rank", str(rank), *program], stdin=subprocess.DEVNULL, env={**os.environ, "OMP_NUM_THREADS": "1"})
                  for rank in range(size)]
        deadline = time.monotonic() + SECONDS
        while len(os.listdir(folder)) < size - 1 and time.monotonic() < deadline and sum(agent.poll() is None for agent in agents) > 1:
            time.sleep(0.1)
        survivors = sorted(os.listdir(folder))
        for agent in agents:
            if len(survivors) < size - 1:
                agent.terminate()  # it ends its rank
            else:
                agent.kill()
        for agent in agents:
            agent.wait()
    if survivors != [str(rank) for rank in range(size - 1)]:
        sys.exit(f"survivors: ranks {survivors} came to the end")


def run_part(part, size):
    print(f"{part} with {size} ranks", flush=True)
    wrong = run_under_torchrun(part, size) if part in UNDER_TORCHRUN else run(part, size)
    if wrong:
        sys.exit("\n".join(wrong))


def check_analyser():
    """Torch's flight-recorder analyser reads the records that `tutti doctor` exports."""
    with tempfile.TemporaryDirectory() as folder:
        records, dumps = os.path.join(folder, "records"), os.path.join(folder, "dumps")
        os.environ["TUTTI_RECORDER"] = records
        run_part("record", 2)
        del os.environ["TUTTI_RECORDER"]
        doctor = [os.path.join(os.path.dirname(sys.executable), "tutti"), "doctor", records, "--export-torch", dumps]
        analyser = [sys.executable, "-m", "torch.distributed.flight_recorder.fr_trace", dumps]
        said = ""
        for command in (doctor, analyser):
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)
            said += done.stdout + done.stderr
    if done.returncode != 0 or "missing ranks: {1}" not in said:
        sys.exit("torch's flight-recorder analyser does not name rank 1: " + said)


def skip_without(module):
    reason = why_unavailable(module)
    if reason:
        print("skipped: " + reason)
        sys.exit(77)


def wheel_for_torch(arguments):
    """Made for the torch of this process's own interpreter, which is that of the virtual environment."""
    parser = argparse.ArgumentParser()
    for option in ("--cxx", "--meson", "--werror", "--wheels", "--cuda-stand-in", "--cuda-include"):
        parser.add_argument(option, default="")
    options = parser.parse_args(arguments)
    skip_without("torch")
    sys.path.insert(0, os.path.join(os.path.dirname(HERE), "python"))
    import package_test  # pylint: disable=import-outside-toplevel
    pip = [os.path.join(os.path.dirname(sys.executable), "pip"), "--disable-pip-version-check"]
    package_test.run([*pip, "install", "-q", "--upgrade", "pip"])  # the venv's may know no -C
    return package_test.make_wheel(pip, options), pip, options


def build_device_stand_in(options, output):
    """The library that gives this torch a CUDA, for the same headers as the package."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
    sys.path.insert(0, os.path.join(root, "bindings", "torch"))
    import find_torch  # pylint: disable=import-outside-toplevel
    facts = find_torch.describe()
    includes = [value for key, value in facts if key == "INCLUDE"] + [options.cuda_include]
    folders = [value for key, value in facts if key == "LIBRARIES"]
    command = [*shlex.split(options.cxx), "-std=c++20", "-Wall", "-Wextra", "-Werror", "-O1", "-fPIC", "-shared", "-I" + root]
    command += [part for folder in includes for part in ("-isystem", folder)]
    command += [os.path.join(HERE, "device_stand_in.cpp"), "-o", output, *("-L" + folder for folder in folders), "-ltorch_cpu", "-lc10"]
    command += [options.cuda_stand_in, "-Wl,-rpath," + os.path.dirname(options.cuda_stand_in)]
    print("+ " + shlex.join(command), flush=True)
    subprocess.run(command, check=True)


def run_on_device(options, size):
    if not options.cuda_stand_in:
        print("device: skipped: this build has no CUDA, so that there is no stand-in for its driver", flush=True)
        return
    with tempfile.TemporaryDirectory() as folder:
        library = os.path.join(folder, "libdevice_stand_in.so")
        build_device_stand_in(options, library)
        os.environ.update(DEVICE_STAND_IN=library, TUTTI_CUDA_LIBRARY=options.cuda_stand_in)
        run_part("device", size)
        del os.environ["TUTTI_CUDA_LIBRARY"]


def torch_entry_points():
    return {point.name for point in importlib.metadata.entry_points(group="torch.backends")}


def run_all_parts(options):
    os.environ["PYTHONPATH"] = ""
    run_on_device(options, 2)
    subprocess.run([sys.executable, os.path.join(os.path.dirname(HERE), "python", "package_test.py"), "runtime"], check=True)
    if "tutti" not in torch_entry_points():
        sys.exit('the installed package has no entry point "tutti" of torch.backends')
    for part, size in (("entry", 2), ("collectives", 3), ("edges", 3), ("life", 3), ("memory", 2), ("again", 3), ("again_at_port", 2), ("forks", 1), ("training", 4), ("many", 10),
                       ("death", 3), ("readme", 2), ("examples", 2)):
        run_part(part, size)
    run_survivors()
    check_analyser()
    if not why_unavailable("numpy"):
        for part in ("tensors", "optimizer", "state", "alias"):
            print(f"Horovod's interface: {part}", flush=True)
            wrong = run_under_torchrun(part, 2, HOROVOD_PROGRAM)
            if wrong:
                sys.exit("\n".join(wrong))
        import package_test  # pylint: disable=import-outside-toplevel
        package_test.run_under_horovodrun(sys.executable, "horovod.torch", "__import__('torch').ones(2)")


def main():
    if sys.argv[1] in ("pip", "wheel"):
        python = sys.argv[2]
        if os.path.abspath(sys.executable) != os.path.abspath(python):
            if not os.path.exists(python):
                print(f"skipped: there is no {python}; tools/check makes it")
                sys.exit(77)
            os.execv(python, [python, *sys.argv])
        wheel, pip, options = wheel_for_torch(sys.argv[3:])
        if sys.argv[1] == "pip":
            subprocess.run([*pip, "install", "-q", "--force-reinstall", "--no-deps", wheel], check=True)
            run_all_parts(options)
        return
    skip_without("tutti.torch")
    run_part(sys.argv[1], int(sys.argv[2]))


if __name__ == "__main__":
    main()
