"""Jobs of one machine that something happens to: starts ranks without a launcher, reads their lines and error files, and freezes,
kills or ends them. Knows fault_program's lines. Used by the tests of this folder and by tools/dev/soak."""
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time

PATIENCE_SECONDS = 60
FREEZER = "/sys/fs/cgroup/freezer"


class Failure(Exception):
    """A job did something that it must not."""


class Ranks:
    """The ranks of one job as processes, in their own process groups."""

    def __init__(self, program, word, size, **variables):
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-fault-")
        self.lines = [[] for _ in range(size)]
        self.processes = []
        self.readers = []
        name = f"fault{os.getpid()}.{id(self)}"
        for rank in range(size):
            environment = os.environ | {
                "TUTTI_JOB_ID": name, "TUTTI_SECRET": name, "TUTTI_RANK": str(rank), "TUTTI_SIZE": str(size),
                "TUTTI_LOCAL_RANK": str(rank), "TUTTI_LOCAL_SIZE": str(size), "TUTTI_ADDRESS": "local",
                "TUTTI_ERROR_FILE": os.path.join(self.folder.name, "error.%r.json")} | variables
            process = subprocess.Popen([program, word], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                       text=True, start_new_session=True)
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
            for rank in ranks:
                for line in list(self.lines[rank]):
                    if rank not in found and re.search(pattern, line):
                        found[rank] = line
            if time.monotonic() > deadline:
                raise Failure(f"no '{pattern}' from ranks {sorted(set(ranks) - set(found))} in {seconds} s\n{self.text()}")
            time.sleep(0.01)
        return found

    def wait_for_end(self, ranks, seconds=PATIENCE_SECONDS):
        """The exit statuses of these ranks, by rank."""
        deadline = time.monotonic() + seconds
        try:
            return {rank: self.processes[rank].wait(max(0.01, deadline - time.monotonic())) for rank in ranks}
        except subprocess.TimeoutExpired:
            raise Failure(f"a rank of {ranks} has not ended within {seconds} s\n{self.text()}") from None

    def error_of(self, rank):
        """The object of its error file, or None."""
        try:
            with open(os.path.join(self.folder.name, f"error.{rank}.json"), encoding="utf-8") as file:
                return json.load(file)
        except FileNotFoundError:
            return None


class Freezer:
    """A cgroup that can be frozen. It thaws at the end: a frozen process cannot be killed."""

    def __init__(self, name):
        self.path = os.path.join(FREEZER, name)
        os.mkdir(self.path)

    @staticmethod
    def why_unavailable():
        return "" if os.access(os.path.join(FREEZER, "cgroup.procs"), os.W_OK) else f"{FREEZER} cannot be written"

    def write(self, file, text):
        with open(os.path.join(self.path, file), "w", encoding="ascii") as out:
            out.write(text)

    def freeze(self, pid):
        self.write("cgroup.procs", str(pid))
        self.write("freezer.state", "FROZEN")

    def thaw(self):
        self.write("freezer.state", "THAWED")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.thaw()
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
