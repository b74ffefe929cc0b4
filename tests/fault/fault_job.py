"""Jobs that something happens to: starts ranks without a launcher, on this machine or in the nodes of a bed, reads their lines and
error files, and freezes, kills or ends them. Knows fault_program's lines. Used by the tests of this folder and by tools/dev/soak."""

import functools
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time

PATIENCE_SECONDS = 60


class Failure(Exception):
    """A job did something that it must not."""


class Ranks:
    """The ranks of one job as processes, in their own process groups."""

    def __init__(self, program, word, size, name="", bed=None, nodes=1, before=None, **variables):
        """`name`: of the job, unique; `bed`: ranks fill its first `nodes` nodes. `before`: called with a rank in its new process."""
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-fault-")
        self.lines = [[] for _ in range(size)]
        self.processes = []
        self.readers = []
        self.node_of = [rank * nodes // size for rank in range(size)]
        name = name or f"fault{os.getpid()}.{id(self)}"
        for rank, node in enumerate(self.node_of):
            environment = (
                os.environ
                | {
                    "TUTTI_JOB_ID": name,
                    "TUTTI_SECRET": name,
                    "TUTTI_RANK": str(rank),
                    "TUTTI_SIZE": str(size),
                    "TUTTI_LOCAL_RANK": str(self.node_of[:rank].count(node)),
                    "TUTTI_LOCAL_SIZE": str(self.node_of.count(node)),
                    "TUTTI_ADDRESS": bed.address(0) if bed else "local",
                    "TUTTI_ERROR_FILE": os.path.join(self.folder.name, "error.%r.json"),
                }
                | variables
            )
            if bed:
                environment["TUTTI_NODE_ID"] = f"node{node}"
            way = bed.prefix(node) if bed else []
            process = subprocess.Popen(
                way + [program, word],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                start_new_session=True,
                preexec_fn=functools.partial(before, rank) if before else None,
            )
            self.processes.append(process)
            reader = threading.Thread(target=self.read, args=(rank,), daemon=True)
            self.readers.append(reader)
            reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.processes:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGKILL)
                process.wait()
        for reader in self.readers:
            reader.join(PATIENCE_SECONDS)
        for process in self.processes:
            process.stdout.close()
        self.folder.cleanup()

    def read(self, rank):
        for line in self.processes[rank].stdout:
            self.lines[rank].append(line.rstrip("\n"))

    def text(self):
        return "\n".join(f"[{rank}] {line}" for rank, lines in enumerate(self.lines) for line in lines)

    def wait_for(self, pattern, ranks, seconds=PATIENCE_SECONDS):
        """The first line of each rank that the pattern finds."""
        deadline = time.monotonic() + seconds
        found = {}
        while len(found) < len(ranks):
            have_ended = {rank for rank in ranks if not self.readers[rank].is_alive()}  # and say no more
            for rank in ranks:
                for line in list(self.lines[rank]):
                    if rank not in found and re.search(pattern, line):
                        found[rank] = line
            if time.monotonic() > deadline or have_ended - set(found):
                raise Failure(f"no '{pattern}' from ranks {sorted(set(ranks) - set(found))} in {seconds} s\n{self.text()}")
            time.sleep(0.01)
        return found

    def wait_for_end(self, ranks, seconds=PATIENCE_SECONDS):
        """The exit statuses of these ranks, by rank."""
        deadline = time.monotonic() + seconds
        try:
            statuses = {rank: self.processes[rank].wait(max(0.01, deadline - time.monotonic())) for rank in ranks}
        except subprocess.TimeoutExpired:
            raise Failure(f"a rank of {ranks} has not ended within {seconds} s\n{self.text()}") from None
        for rank in ranks:
            self.readers[rank].join(PATIENCE_SECONDS)
        return statuses

    def error_of(self, rank):
        """The object of its error file, or None."""
        try:
            with open(os.path.join(self.folder.name, f"error.{rank}.json"), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return None


class ControlGroup:
    """A cgroup (version 1) of some processes. They are killed at the end."""

    CONTROLLER = ""

    def __init__(self, name):
        self.path = os.path.join(self.root(), name)
        os.mkdir(self.path)

    @classmethod
    def root(cls):
        return f"/sys/fs/cgroup/{cls.CONTROLLER}"

    @classmethod
    def why_unavailable(cls):
        return "" if os.access(os.path.join(cls.root(), "cgroup.procs"), os.W_OK) else f"{cls.root()} cannot be written"

    def write(self, file, text):
        with open(os.path.join(self.path, file), "w", encoding="ascii") as out:
            out.write(text)

    def add(self, pid):
        self.write("cgroup.procs", str(pid))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        deadline = time.monotonic() + PATIENCE_SECONDS
        while time.monotonic() < deadline:
            with open(os.path.join(self.path, "cgroup.procs"), encoding="ascii") as processes:
                pids = [int(line) for line in processes]
            for pid in pids:
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
            if not pids:
                break
            time.sleep(0.01)
        os.rmdir(self.path)


class Freezer(ControlGroup):
    """Processes that do not run. It thaws at the end: a frozen process cannot be killed."""

    CONTROLLER = "freezer"

    def freeze(self, pid):
        self.add(pid)
        self.write("freezer.state", "FROZEN")

    def thaw(self):
        self.write("freezer.state", "THAWED")

    def __exit__(self, *details):
        self.thaw()
        super().__exit__(*details)


class LittleMemory(ControlGroup):
    """Processes that the kernel kills as soon as they need more memory than this."""

    CONTROLLER = "memory"

    def limit(self, size_bytes):
        self.write("memory.limit_in_bytes", str(size_bytes))
