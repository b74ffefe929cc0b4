"""Runs a function on several processes of this host, as horovod.run does."""

import multiprocessing.spawn
import os
import subprocess
import sys
import tempfile

from ._objects import pickle

_PROGRAM = """
import os, sys
folder = sys.argv[1]
from tutti.horovod._launch import call_in_rank
call_in_rank(folder)
"""


def run(
    func,
    args=(),
    kwargs=None,
    np=1,
    num_proc=None,
    hosts=None,
    hostfile=None,
    output_filename=None,
    verbose=None,
    executable=None,
    **others,
):
    """Calls func(*args, **kwargs) on np new processes and returns their results, in rank order.

    func: what pickle takes; with cloudpickle installed, any function. hosts, hostfile, output_filename: as `tutti run` has them. num_proc:
    the newer name of np. Errors: RuntimeError where a process fails; NotImplementedError for options of elastic jobs.
    """
    refused = sorted(
        name
        for name, value in others.items()
        if value is not None and name in ("min_np", "max_np", "min_num_proc", "max_num_proc", "host_discovery_script")
    )
    if refused:
        raise NotImplementedError(f"run: {', '.join(refused)}: jobs that grow or shrink are not supported")
    with tempfile.TemporaryDirectory(prefix="tutti-run-") as folder:
        with open(os.path.join(folder, "call"), "wb") as file:
            file.write(pickle.dumps(getattr(sys.modules["__main__"], "__file__", None)))
            file.write(pickle.dumps((func, tuple(args), kwargs or {})))
        command = [_tool(), "run", "-n", str(num_proc or np)]
        for flag, value in (("-H", hosts), ("--hostfile", hostfile), ("--output-filename", output_filename)):
            command += [flag, value] if value else []
        if verbose:
            command.append("--verbose")
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
        status = subprocess.run(command + [executable or sys.executable, "-c", _PROGRAM, folder], env=environment, check=False).returncode
        if status != 0:
            raise RuntimeError(f"run: {' '.join(command)} ended with status {status}; its output says why")
        results = []
        for rank in range(num_proc or np):
            with open(os.path.join(folder, f"result.{rank}"), "rb") as file:
                results.append(pickle.loads(file.read()))
    return results


def call_in_rank(folder):
    """What each process of run() does."""
    with open(os.path.join(folder, "call"), "rb") as file:
        main = pickle.load(file)
        if main is not None:
            multiprocessing.spawn.prepare({"init_main_from_path": main})  # a function of the program's own file is found there
        func, args, kwargs = pickle.load(file)
    result = func(*args, **kwargs)
    rank = os.environ["RANK"]
    with open(os.path.join(folder, f"result.{rank}"), "wb") as file:
        file.write(pickle.dumps(result))


def _tool():
    """The command `tutti`: beside the interpreter, where pip puts it, or on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "tutti")
    return beside if os.access(beside, os.X_OK) else "tutti"
