"""Runs a function on several processes, as horovod.run does."""

import multiprocessing.spawn
import os
import subprocess
import sys
import tempfile

from . import _job
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
    num_proc=None,
    min_num_proc=None,
    max_num_proc=None,
    slots=None,
    reset_limit=None,
    cooldown_range=None,
    hosts=None,
    hostfile=None,
    host_discovery_script=None,
    start_timeout=None,
    ssh_port=None,
    ssh_identity_file=None,
    disable_cache=None,
    output_filename=None,
    verbose=None,
    use_gloo=None,
    use_mpi=None,
    mpi_args=None,
    network_interface=None,
    network_interfaces=None,
    executable=None,
    np=None,
    min_np=None,
    max_np=None,
):
    """Calls func(*args, **kwargs) on np new processes and returns their results, in rank order.

    func: what pickle takes; with cloudpickle installed, any function. Hosts other than this one need the folder of temporary files in common
    with it. min_np, max_np, host_discovery_script: of an elastic job, in which func calls what hvd.elastic.run decorates; the results are those
    of the ranks it ends with. Others are options of `tutti run`, and newer names; disable_cache, use_gloo, use_mpi and mpi_args mean nothing.
    Errors: RuntimeError where the job fails.
    """
    # Longer than 60 lines because it has all of Horovod's arguments, by name.
    del disable_cache, use_gloo, use_mpi, mpi_args
    least, most = min_num_proc or min_np, max_num_proc or max_np
    is_elastic = bool(least or most or host_discovery_script)
    count = num_proc or np or (least if is_elastic else None) or 1
    options = {
        "-H": hosts,
        "--hostfile": hostfile,
        "--host-discovery-script": host_discovery_script,
        "--blacklist-cooldown-range": cooldown_range,
        "--verbose": bool(verbose),
        "--min-np": least,
        "--max-np": most,
        "--slots-per-host": slots,
        "--reset-limit": reset_limit,
        "--start-timeout": start_timeout,
        "--ssh-port": ssh_port,
        "--ssh-identity-file": ssh_identity_file,
        "--output-filename": output_filename,
        "--network-interfaces": network_interfaces or network_interface,
    }
    with tempfile.TemporaryDirectory(prefix="tutti-run-") as folder:
        with open(os.path.join(folder, "call"), "wb") as file:
            file.write(pickle.dumps(getattr(sys.modules["__main__"], "__file__", None)))
            file.write(pickle.dumps((func, tuple(args), kwargs or {})))
        command = [_tool(), "run", "-n", str(count), *_words_of(options)]
        environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
        status = subprocess.run(command + [executable or sys.executable, "-c", _PROGRAM, folder], env=environment, check=False).returncode
        if status != 0:
            raise RuntimeError(f"run: {' '.join(command)} ended with status {status}; its output says why")
        return _read_results(folder, None if is_elastic else count)


def _words_of(options):
    """{flag: value} for a command line. Those without a value are left out."""
    words = []
    for flag, value in options.items():
        if value:
            values = [] if value is True else value if isinstance(value, (list, tuple)) else [value]
            words += [flag, *map(str, values)]
    return words


def _read_results(folder, count):
    """In rank order; count: of ranks that must have one, or None."""
    ranks = sorted(int(name.split(".")[1]) for name in os.listdir(folder) if name.startswith("result."))
    results = []
    for rank in ranks if count is None else range(count):
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
    # In an elastic job it is not the one that the process started with.
    rank = _job.last_rank() if "TUTTI_ELASTIC" in os.environ else os.environ["RANK"]
    with open(os.path.join(folder, f"result.{rank}"), "wb") as file:
        file.write(pickle.dumps(result))


def _tool():
    """The command `tutti`: beside the interpreter, where pip puts it, or on PATH."""
    beside = os.path.join(os.path.dirname(sys.executable), "tutti")
    return beside if os.access(beside, os.X_OK) else "tutti"
