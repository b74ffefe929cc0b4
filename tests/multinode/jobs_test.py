#!/usr/bin/env python3
"""Jobs over the nodes of a bed: that all collectives are right there, and what ranks hear when a node or a link ends.

Knows node_program's lines. Usage: jobs_test.py PART PROGRAM; exit status 77 is "skipped".
"""
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "cli"))
import testbed  # pylint: disable=wrong-import-position

PATIENCE_SECONDS = 100
TIMEOUT_SECONDS = 12  # TUTTI_TIMEOUT where somebody has to be missed


class Job:
    """Ranks in nodes; `counts[k]` of them in node k. A variable is a text, or a list with one for each node."""

    def __init__(self, bed, counts, program, word, argument="", **variables):
        self.ranks, self.lines = [], []
        self.folder = tempfile.TemporaryDirectory(prefix="tutti-bed-")  # of error files
        self.node_of = [node for node, count in enumerate(counts) for _ in range(count)]
        for rank, node in enumerate(self.node_of):
            # The job does not get the bed's own variables.
            environment = {name: value for name, value in os.environ.items() if not name.startswith("TUTTI_BED")}
            environment |= {"TUTTI_JOB_ID": f"bed{os.getpid()}", "TUTTI_SECRET": "s", "TUTTI_RANK": str(rank),
                            "TUTTI_SIZE": str(sum(counts)), "TUTTI_LOCAL_SIZE": str(counts[node]),
                            "TUTTI_LOCAL_RANK": str(self.node_of[:rank].count(node)), "TUTTI_ADDRESS": bed.address(0),
                            "TUTTI_NODE_ID": f"node{node}", "TUTTI_ERROR_FILE": os.path.join(self.folder.name, "%r.json")}
            environment |= {name: (value if isinstance(value, str) else value[node]).format(node=node)
                            for name, value in variables.items()}
            process = bed.popen(node, ["env", "-i"] + [f"{n}={v}" for n, v in environment.items()] + [program, word, argument],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            self.ranks.append(process)
            self.lines.append([])
            threading.Thread(target=self.read, args=(rank,), daemon=True).start()

    def read(self, rank):
        for line in self.ranks[rank].stdout:
            self.lines[rank].append(line.rstrip("\n"))

    def error_of(self, rank):
        """The object of its error file, which is there before its calls fail."""
        with open(os.path.join(self.folder.name, f"{rank}.json"), encoding="utf-8") as file:
            return json.load(file)

    def text(self):
        return "\n".join(f"[{rank}] {line}" for rank, lines in enumerate(self.lines) for line in lines)

    def wait_for(self, pattern, ranks, seconds=PATIENCE_SECONDS):
        """The first line of each rank that the pattern finds; ends the test if one has none in time."""
        deadline = time.monotonic() + seconds
        found = {}
        while len(found) < len(ranks):
            for rank in ranks:
                for line in list(self.lines[rank]):
                    if rank not in found and re.search(pattern, line):
                        found[rank] = line
            expect(time.monotonic() < deadline, f"no '{pattern}' from {sorted(set(ranks) - set(found))} in {seconds} s", self)
            time.sleep(0.02)
        return found

    def expect_end(self, statuses=(0,)):
        for rank, process in enumerate(self.ranks):
            try:
                code = process.wait(PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                code = "none"
            expect(code in statuses, f"rank {rank} ended with {code}", self)

    def pid_of(self, rank):
        """Of the program: what we started is the way into the node."""
        return self.ranks[rank].pid


def expect(condition, what, job=None):
    """Ends the process at once: what it started ends with it."""
    if not condition:
        print(f"FAILED: {what}\n{job.text() if job else ''}", flush=True)
        os._exit(1)


def collectives(bed, program):
    transports = os.environ.get("TUTTI_TRANSPORTS", "auto")
    # Rank counts 2 to 6 over two and three nodes, even and uneven.
    layouts = {2: [[1, 1], [1, 2], [2, 2], [2, 3], [3, 3]], 3: [[1, 1, 1], [1, 2, 1], [2, 1, 2], [2, 2, 2]]}[bed.nodes]
    for counts in layouts:
        job = Job(bed, counts, program, "collectives", TUTTI_TRANSPORTS=transports, TUTTI_TIMEOUT="90")
        job.expect_end()
        several = sum(counts) > len(counts)
        for rank, line in job.wait_for(r"cases agree", range(sum(counts)), 1).items():
            mates = job.node_of.count(job.node_of[rank])
            peers = line.split()[-1]
            expect(int(line.split()[2]) > 0 and f"{bed.nodes if several else 0} domains" in line, line, job)
            wanted = mates - 1 if transports == "auto" or "shm" in transports else 0
            expect(peers.count("s") == wanted and peers.count("n") == sum(counts) - 1 - wanted, "transports: " + line, job)
        print(counts, job.lines[0][-1], flush=True)


def asynchronous(bed, program):
    """Submitted operations of overlapping groups, with and without progress threads, over shared memory and the network."""
    for threads in (0, 1, 2):
        job = Job(bed, [2, 2], program, "async", TUTTI_PROGRESS_THREADS=str(threads), TUTTI_TIMEOUT="60",
                  TUTTI_TRANSPORTS=os.environ.get("TUTTI_TRANSPORTS", "auto"),
                  TUTTI_TEST_FRACTION=os.environ.get("TUTTI_TEST_FRACTION", "1"))
        job.expect_end()
        job.wait_for("all operations agree", range(4), 1)
        print(f"{threads} progress threads: {job.lines[0][-1]}", flush=True)


def killed(bed, program):
    """Of two nodes of two ranks each: the one that leads node 1, one that does not, and rank 0."""
    records = tempfile.TemporaryDirectory(prefix="tutti-records-")  # of each node, as if they were machines
    for victim in (2, 3, 1, 0):
        job = Job(bed, [2, 2], program, "sum", TUTTI_TIMEOUT=str(TIMEOUT_SECONDS), TUTTI_RECORDER=records.name + "/{node}")
        job.wait_for("sums", range(4))
        os.kill(job.pid_of(victim), signal.SIGKILL)
        survivors = [rank for rank in range(4) if rank != victim]
        # The deadline, and the second that the control channel has to find a better cause than a transport's.
        heard = job.wait_for("caught", survivors, TIMEOUT_SECONDS + 10)
        for line in heard.values():
            expect(f"rank {victim} (pid" in line and f"on node{victim // 2}" in line, f"victim {victim}: {line}", job)
        causes = [job.error_of(rank)["root_cause"] for rank in survivors]
        expect(all((cause["verdict"], cause["world_rank"]) == ("dead", victim) for cause in causes), str(causes), job)
        # Those on its node know more, and rank 0 tells all.
        for cause in causes if victim != 0 else []:
            expect(cause == causes[0] and cause["signal"] == signal.SIGKILL and cause["last_completed"], str(causes), job)
        for rank, process in enumerate(job.ranks):
            expect(process.wait(PATIENCE_SECONDS) == (-signal.SIGKILL if rank == victim else 0), f"end of rank {rank}", job)
        roots = [line for lines in job.lines for line in lines if "ROOT CAUSE" in line]
        expect(len(roots) == 1 if victim != 0 else roots, f"lines of the root cause: {roots}", job)
        print("killed", victim, heard[survivors[0]], flush=True)


def lost_alone(bed, program):
    """A rank alone on its node, with a record that nobody else can read: it has reported what it had completed. So have
    the ranks of a node that is cut off as a whole."""
    records = tempfile.TemporaryDirectory(prefix="tutti-records-")  # of each node, as if they were machines
    settings = {"TUTTI_TIMEOUT": "4", "TUTTI_RECORDER": records.name + "/{node}"}
    for counts, victim in (([2, 1], 2), ([1, 2], 0), ([1, 1], 1)):
        job = Job(bed, counts, program, "sum", **settings)
        survivors = [rank for rank in range(sum(counts)) if rank != victim]
        job.wait_for("sums", range(sum(counts)))
        # Longer than a report takes, which comes once a second, on a busy machine less often, and leaves no trace.
        time.sleep(4)
        os.kill(job.pid_of(victim), signal.SIGKILL)
        job.wait_for("caught", survivors)
        for rank in survivors:
            cause = job.error_of(rank)["root_cause"]
            expect(cause["verdict"] == "dead" and cause["world_rank"] == victim, str(cause), job)
            last = cause["last_completed"]
            expect(last and last["is_report"] and last["sequence"] > 0 and last["call"], str(cause), job)
        print("alone", victim, cause["last_completed"], flush=True)
        job.expect_end(statuses=(0, -signal.SIGKILL))
    job = Job(bed, [2, 2], program, "sum", **settings)
    job.wait_for("sums", range(4))
    # As above.
    time.sleep(4)
    bed.cut(1)
    job.wait_for("caught", range(4))
    for rank in range(4):
        error = job.error_of(rank)
        verdicts = [error["root_cause"]] + error["others"]
        expect(len(verdicts) == 2 and all(v["verdict"] == "unreachable" and (v["last_completed"] or {}).get("is_report") for v in verdicts),
               str(verdicts), job)
    bed.heal(1)
    job.expect_end()


def shrunk(bed, program):
    """Survivors on both nodes go on when a rank dies and then the one that leads the job; no connection is left over.
    Of two, a process that joins from the other node replaces the next one."""
    for mode in ("off", "encrypt"):
        settings = {"TUTTI_WIRE_SECURITY": mode, "TUTTI_TIMEOUT": "30", "TUTTI_TRANSPORTS": "shm,tcp"}
        job = Job(bed, [2, 2], program, "go_on", **settings)
        alive = [0, 1, 2, 3]
        invitation = job.wait_for("invitation", [0])[0].split()[1]
        for victim in (3, 0):
            job.wait_for(f"of {len(alive)} sums", alive)
            os.kill(job.pid_of(victim), signal.SIGKILL)
            alive.remove(victim)
        job.wait_for("of 2 sums", alive)
        for rank in alive:
            found = connections(job.pid_of(rank))
            print(f"{mode}: rank {rank} has {found}", flush=True)
            expect(len(found) == 2, "one connection of the control tree and one of data", job)
        os.kill(job.pid_of(2), signal.SIGKILL)
        new = Job(bed, [0, 1], program, "join", argument=invitation, **settings)
        new.wait_for("rank 1 of 2 sums", [0])
        os.kill(new.pid_of(0), signal.SIGUSR1)
        new.expect_end()
        job.expect_end(statuses=(0, -signal.SIGKILL))


def frozen(bed, program):
    """A rank that is stopped is named, also one that leads a node or the job, and none that is behind it."""
    for victim in (2, 3, 0):
        job = Job(bed, [2, 2], program, "sum", TUTTI_TIMEOUT="3")
        job.wait_for("sums", range(4))
        os.kill(job.pid_of(victim), signal.SIGSTOP)
        others = [rank for rank in range(4) if rank != victim]
        for line in job.wait_for("caught", others, PATIENCE_SECONDS).values():
            expect(f"peer {victim}:" in line, f"victim {victim}: {line}", job)
            expect("is frozen" not in line or re.search(rf"rank {victim} \(pid \d+ on node\d\) is frozen", line), line, job)
            print("frozen", victim, line, flush=True)
        causes = [job.error_of(rank)["root_cause"] for rank in others]
        expect(all((cause["verdict"], cause["world_rank"]) == ("frozen", victim) for cause in causes), str(causes), job)
        os.kill(job.pid_of(victim), signal.SIGKILL)
        job.expect_end(statuses=(0, -signal.SIGKILL))


def cut(bed, program):
    """A link that falls silent: at the deadline each side names a rank of the other."""
    timeout = 4
    job = Job(bed, [2, 2], program, "sum", TUTTI_TIMEOUT=str(timeout))
    job.wait_for("sums", range(4))
    bed.cut(1)
    heard = job.wait_for("caught", range(4), PATIENCE_SECONDS)
    for rank, line in heard.items():
        others = [r for r in range(4) if r // 2 != rank // 2]
        expect(any(f"peer {r}:" in line for r in others), line, job)
        cause = job.error_of(rank)["root_cause"]
        # Rank 0 is out of reach for one side: there each rank measures how long that lasts.
        said = [re.sub(r"[\d.]+ s", "N s", text) for text in (line, cause["reason"])]
        expect(cause["verdict"] == "unreachable" and cause["world_rank"] in others and f"is unreachable: {said[1]}" in said[0],
               f"{cause} of {line}", job)
        print(line, flush=True)
    bed.heal(1)
    job.expect_end()


def healed(bed, program):
    """A link that is cut for less than the timeout: the job goes on."""
    timeout = 12
    bed.use_reno()
    job = Job(bed, [2, 2], program, "sum_until_told", TUTTI_TIMEOUT=str(timeout))
    job.wait_for("sums", range(4))
    bed.cut(1)
    # so long the link is cut: more than the network is given, less than the timeout
    time.sleep(0.4 * timeout)
    bed.heal(1)
    os.kill(job.pid_of(3), signal.SIGUSR1)
    job.wait_for("has ended", range(4), 3 * timeout)
    job.expect_end()
    expect("caught" not in job.text(), "the cut ended the job", job)


def zoo(bed, program):
    """Interfaces that lead astray: connects fast without a variable set, and says why it goes where it goes."""
    job = Job(bed, [1, 2], program, "connect", TUTTI_LOG="info", TUTTI_ADDRESS="node0")
    job.expect_end()
    for line in job.wait_for("connected in", range(3), 1).values():
        expect(int(line.split()[-2]) < 3000, line, job)
    text = job.text()
    expect("between nodes through eth0 (the route to 10.77.0." in text, "no reason for eth0", job)
    # A name that does not exist fails at once and lists what there is; networks choose, too.
    job = Job(bed, [1, 1], program, "connect", TUTTI_IFACE="eth7")
    job.expect_end(statuses=(1,))
    expect(all("TUTTI_IFACE='eth7'" in "".join(lines) and "docker0" in "".join(lines) for lines in job.lines), "eth7", job)
    job = Job(bed, [1, 1], program, "connect", TUTTI_IFACE="10.77.0.0/16", TUTTI_LOG="info")
    job.expect_end()
    expect("(the route to 10.77.0.2)" in job.text() or "TUTTI_IFACE" in job.text(), "by network", job)
    if "tcp" in os.environ.get("TUTTI_TRANSPORTS", "tcp"):  # a library listens where it likes
        for where in ("node0", bed.address(0)):
            job = Job(bed, [1, 1], program, "sum", TUTTI_ADDRESS=where)
            job.wait_for("sums", range(2))
            for rank in range(2):
                expect_listeners_on(bed.address(rank), job.pid_of(rank), job)
            for process in job.ranks:
                process.kill()
                process.wait()


def ipv6(bed, program):
    job = Job(bed, [1, 2], program, "connect", TUTTI_ADDRESS=bed.address6(0), TUTTI_LOG="info")
    job.expect_end()


def listeners(pid):
    """Host and port, as the kernel writes them, of all processes in the network namespace of this one."""
    found = set()
    for table in ("tcp", "tcp6"):
        with open(f"/proc/{pid}/net/{table}", encoding="utf-8") as lines:
            for words in list(map(str.split, lines))[1:]:
                if words[3] == "0A":  # LISTEN
                    found.add(tuple(words[1].rsplit(":", 1)))
    return found


def connections(pid):
    """Of this process to other nodes: both ends, as the kernel writes them."""
    held = {os.readlink(entry.path) for entry in os.scandir(f"/proc/{pid}/fd") if os.path.islink(entry.path)}
    with open(f"/proc/{pid}/net/tcp", encoding="utf-8") as lines:
        rows = list(map(str.split, lines))[1:]
    return sorted((words[1], words[2]) for words in rows if words[3] == "01" and f"socket:[{words[9]}]" in held)


def listening_ports(pid):
    return {int(port, 16) for _, port in listeners(pid)}


def expect_listeners_on(address, pid, job):
    """Once the start is over there is none at any other address."""
    wanted = socket.inet_aton(address)[::-1].hex().upper()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while {host for host, _ in listeners(pid)} != {wanted}:
        expect(time.monotonic() < deadline, f"{address} and no other: {listeners(pid)}", job)
        time.sleep(0.02)


def protected(bed, program):
    """Every mode of TUTTI_WIRE_SECURITY carries a job of two nodes; nodes with different ones hear so."""
    for mode in ("auth", "encrypt"):
        job = Job(bed, [2, 2], program, "async", TUTTI_WIRE_SECURITY=mode, TUTTI_LOG="info", TUTTI_TIMEOUT="60",
                  TUTTI_TRANSPORTS="shm,tcp", TUTTI_TEST_FRACTION=os.environ.get("TUTTI_TEST_FRACTION", "0.3"))
        job.expect_end()
        job.wait_for("all operations agree", range(4), 1)
    job = Job(bed, [1, 1], program, "connect", TUTTI_WIRE_SECURITY=["off", "encrypt"])
    job.expect_end(statuses=(1,))
    for line in job.wait_for("TUTTI_WIRE_SECURITY must be equal", [0, 1], 1).values():
        expect("'encrypt' on rank 1 of 2" in line and "'off' on rank 0 of 2" in line, line, job)
    job = Job(bed, [1, 1], program, "connect", TUTTI_WIRE_SECURITY="encrypted")
    job.expect_end(statuses=(1,))
    job.wait_for("TUTTI_WIRE_SECURITY='encrypted'", [0, 1], 1)


def ports(bed, program):
    """Every port at which ranks listen lies in TUTTI_PORTS; of a list of interfaces each node takes what it has."""
    job = Job(bed, [2, 2], program, "sum", TUTTI_PORTS="41000-41031", TUTTI_IFACE="eno1,10.77.0.0/16", TUTTI_TIMEOUT="60",
              TUTTI_TRANSPORTS=os.environ.get("TUTTI_TRANSPORTS", "auto"))
    job.wait_for("sums", range(4))
    for rank in (0, 2):
        found = listening_ports(job.pid_of(rank))
        print(f"node of rank {rank} listens at {sorted(found)}", flush=True)
        expect(len(found) >= 2 and all(41000 <= port <= 41031 for port in found), f"ports {sorted(found)}", job)
    for process in job.ranks:
        process.kill()
    full = Job(bed, [1, 1], program, "connect", TUTTI_PORTS="41000-x", TUTTI_TIMEOUT="10")
    full.wait_for("TUTTI_PORTS: '41000-x' is no range of ports", [0, 1], 20)


def absent(bed, program):
    """A rank of another node that never comes is named on every node."""
    job = Job(bed, [2, 2], program, "connect", TUTTI_TIMEOUT="4")
    os.kill(job.pid_of(3), signal.SIGKILL)
    heard = job.wait_for("error timeout|rank 3 of 4 did not arrive", [0, 1, 2], 20)
    print(heard, flush=True)
    expect(all("rank 3 of 4 did not arrive" in line for line in heard.values()), "who is absent", job)


def run_command(bed, program):
    """`tutti run` starts the parts of a job by an agent that takes what ssh takes, and ends them all with one."""
    tutti = os.path.join(os.path.dirname(program), "..", "..", "tools", "tutti")
    agent = f"{sys.executable} {os.path.abspath(testbed.__file__)}"

    def run(*words):
        return subprocess.run([tutti, "run", "--agent", agent, *words], capture_output=True, text=True, timeout=PATIENCE_SECONDS,
                              check=False)

    done = run("-H", "node0:2,node1:3", program, "connect")
    expect(done.returncode == 0 and all(f"[{r}] rank {r} of 5 connected" in done.stdout for r in range(5)), str(done))
    # The first that fails decides, and nobody stays behind.
    script = 'echo "pid $$"; if [ $RANK = 2 ]; then sleep 1; exit 3; fi; sleep 100'
    done = run("-n", "3", "-H", "node0:2,node1:2", "sh", "-c", script)
    expect(done.returncode == 3 and "rank 2 (pid " in done.stderr, str(done))
    expect(done.stdout.count("pid") == 3, str(done))
    done = run("-H", "node0,nowhere", program, "connect")
    expect(done.returncode != 0 and "host nowhere" in done.stderr, str(done))
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.count("sleep 100")
    expect(left == 0, f"{left} processes are left")


def many(bed, program):
    """Twenty jobs at once that know nothing of each other; one of many ranks."""
    jobs = [Job(bed, [1, 1], program, "connect", TUTTI_JOB_ID=f"job{i}", TUTTI_SECRET=f"secret{i}", TUTTI_TIMEOUT="100")
            for i in range(20)]
    for job in jobs:
        job.expect_end()
    job = Job(bed, [20, 20], program, "connect", TUTTI_TIMEOUT="100")
    job.expect_end()


def main():
    part, program = sys.argv[1], os.path.abspath(sys.argv[2])
    name, nodes = re.fullmatch(r"(\w+?)(?:_(\d+))?", part).groups()
    reason = testbed.why_unavailable()
    if reason:
        print("skipped: " + reason)
        sys.exit(77)
    sys.exit(testbed.run_in_bed(lambda bed: globals()[name](bed, program), nodes=int(nodes or 2), has_zoo=name == "zoo",
                                has_ipv6=name == "ipv6"))


if __name__ == "__main__":
    main()
