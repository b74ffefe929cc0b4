#!/usr/bin/env python3
"""Drives the programs of bench/peers through their protocol, each with every setting that settings.json names.

Knows nothing of tutti: it checks what a driver relies on. Exit status 77 (skipped) where the peer is not built or installed.
Usage: peers_protocol_test.py [--nodes] LIBRARY SETTINGS_JSON [PROGRAM]; --nodes: each rank on a node of a bed of its own.
"""
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "cli"))
import testbed  # pylint: disable=wrong-import-position

COLLECTIVES = ("allreduce", "broadcast", "allgather", "reduce_scatter", "alltoall", "barrier")
FIELDS = set("library collective bytes count dtype op in_place ranks nodes algorithm transport backend iterations p50_us p95_us "
             "min_us mean_us algbw_GBs busbw_GBs wrong".split())
REPLY_SECONDS = 60
RANKS = 2


def fail(message):
    print("FAILED: " + message)
    sys.exit(1)


def matches(entry, collective, size, ranks, placement, in_place):
    """The conditions of an entry of `choose`, as bench/peers/README.md defines them."""
    wanted = entry.get("collective", collective)
    return (collective in (wanted if isinstance(wanted, list) else [wanted])
            and entry.get("in_place", in_place) == in_place
            and entry.get("placement", placement) == placement
            and entry.get("min_ranks", 1) <= ranks <= entry.get("max_ranks", ranks)
            and entry.get("max_ranks_per_node", 1) >= 1
            and (not entry.get("power_of_two") or ranks & (ranks - 1) == 0)
            and entry.get("from", 0) <= size <= entry.get("to", size))


def choose(library, *request):
    return next(entry for entry in library["choose"] if matches(entry, *request))


def check_settings(library):
    """Every request finds an entry, every entry a setting, and every entry some request."""
    used = set()
    for collective in COLLECTIVES:
        for size in sorted({0, *(2**e + d for e in range(2, 31) for d in (-1, 0, 1))}):
            for ranks in range(1, 10):
                for placement in ("fits", "oversubscribed"):
                    for in_place in (False, True):
                        entry = choose(library, collective, size, ranks, placement, in_place)
                        used.add(library["choose"].index(entry))
                        if entry["setting"] not in library["settings"]:
                            fail("unknown setting " + entry["setting"])
    unused = set(range(len(library["choose"]))) - used
    if unused:
        fail(f"entries of choose that nothing reaches: {sorted(unused)}")


def values_of_bed():
    """What a driver tells launchers and programs about the nodes."""
    if testbed.Bed.current() is None:
        return {}
    addresses, holders = (os.environ["TESTBED_" + name].split(",") for name in ("ADDRESSES", "HOLDERS"))
    return {"ranks_per_node": "1", "agent": os.environ["TESTBED_PROGRAM"], "network": os.environ["TESTBED_NETWORK"],
            "hub": os.environ["TESTBED_HUB"], "hosts": ",".join(addresses), "slots": ",".join(a + ":1" for a in addresses),
            "namespaces": ",".join(f"/proc/{holder}/ns/net" for holder in holders)}


def environment_of(program):
    """The virtual environment of a library from PyPI: beside its program, peer_NAME."""
    folder, name = os.path.split(program)
    return os.path.join(folder, name.removeprefix("peer_"))


class Peer:
    def __init__(self, library, name, program):
        setting = library["settings"][name]
        launch = library["launch"]
        placement = "fits" if len(os.sched_getaffinity(0)) >= RANKS else "oversubscribed"
        words = (launch["command"] + launch[placement] + launch.get("bound", []) + setting["launch_arguments"] + ["{program}"]
                 + launch["program_arguments"] + setting["program_arguments"])
        values = {"program": program, "environment": environment_of(program), "ranks": str(RANKS), "setting": name,
                  "transport": setting["transport"], **values_of_bed()}
        command = [re.sub(r"\{(\w+)\}", lambda m: values[m.group(1)], word) for word in words]
        self.name = name
        self.buffer = b""
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True,
                                        env={**os.environ, **setting["environment"]})

    def line(self):
        """The next line of the protocol; ends the test where none comes."""
        deadline = time.monotonic() + REPLY_SECONDS
        while True:
            text, newline, rest = self.buffer.partition(b"\n")
            if newline:
                self.buffer = rest
                if text == b"ready" or text.startswith(b"{"):
                    return text.decode()
                continue
            readable, _, _ = select.select([self.process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self.process.stdout.fileno(), 65536) if readable else b""
            if not piece:
                self.kill()
                fail(f"{self.name}: no answer")
            self.buffer += piece

    def ask(self, command):
        self.process.stdin.write((command + "\n").encode())
        self.process.stdin.flush()
        return json.loads(self.line())

    def processor_seconds(self):
        """Processor time so far of all processes of this peer's session."""
        total = 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as stat:
                    fields = stat.read().rpartition(")")[2].split()
            except OSError:
                continue
            if self.is_ours(int(pid), int(fields[3])):
                total += int(fields[11]) + int(fields[12])
        return total / os.sysconf("SC_CLK_TCK")

    def is_ours(self, pid, session):
        """In our session, or started by a process that is: mpirun gives its ranks sessions of their own."""
        while pid > 1:
            if session == self.process.pid:
                return True
            try:
                with open(f"/proc/{pid}/stat") as stat:
                    pid = int(stat.read().rpartition(")")[2].split()[1])
                session = os.getsid(pid)
            except OSError:
                return False
        return False

    def kill(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def check_record(record, command, library_name, setting):
    missing = FIELDS - set(record)
    if missing:
        fail(f"{command}: {record}: fields missing: {sorted(missing)}")
    words = command.split()
    expected = {"library": library_name, "collective": words[1], "ranks": RANKS, "nodes": 1, "wrong": 0}
    for field, value in expected.items():
        if record[field] != value:
            fail(f"{setting}: {command}: {field} is {record[field]}, expected {value}")
    if words[1] != "barrier" and (record["bytes"] != record["count"] * 4 or record["bytes"] < int(words[2])):
        fail(f"{setting}: {command}: {record['bytes']} bytes, {record['count']} elements")
    if not 0 < record["min_us"] <= record["p50_us"] <= record["p95_us"] or record["iterations"] < 1:
        fail(f"{setting}: {command}: times {record}")


def check_setting(library, library_name, setting, program):
    peer = Peer(library, setting, program)
    try:
        if peer.line() != "ready":
            fail(f"{setting}: not ready")
        placement = "fits" if len(os.sched_getaffinity(0)) >= RANKS else "oversubscribed"
        measured = 0
        for collective in COLLECTIVES:
            for size in (0,) if collective == "barrier" else (4, 4100, 262144):
                for options in ("mode=fresh", "mode=hot", "mode=b2b in_place=1"):
                    in_place = "in_place=1" in options
                    entry = choose(library, collective, size, RANKS, placement, in_place)
                    command = f"run {collective} {size} iters=5 warmup=2 budget_ms=50 {options}"
                    if entry["setting"] == setting and "algorithm" in entry:
                        command += " algorithm=" + entry["algorithm"]
                    record = peer.ask(command)
                    # A setting may refuse what `choose` never asks of it (polling pairs, alltoall in place).
                    if "error" in record and (entry["setting"] != setting or (collective, in_place) == ("alltoall", True)):
                        continue
                    check_record(record, command, library_name, setting)
                    measured += 1
        for command in ("run allreduce 4 dtype=nonsense", "run allreduce four", "run nonsense 4", "walk", "run allreduce 4 op=band"):
            if "error" not in peer.ask(command):
                fail(f"{setting}: accepted: {command}")
        before = peer.processor_seconds()
        # the processor time of this period is measured
        time.sleep(0.5)
        idle = peer.processor_seconds() - before
        if idle > 0.25:  # two ranks that burn their cores use up to 1.0 s meanwhile
            fail(f"{setting}: {idle} s of processor time while idle")
        peer.process.stdin.write(b"quit\n")
        peer.process.stdin.flush()
        status = peer.process.wait(REPLY_SECONDS)
        if status != 0:
            fail(f"{setting}: exit status {status}")
        print(f"{library_name} {setting}: {measured} measurements")
        return measured
    finally:
        peer.kill()


def main():
    is_across_nodes = sys.argv[1] == "--nodes"
    arguments = sys.argv[2 if is_across_nodes else 1:]
    library_name, settings_path = arguments[:2]
    with open(settings_path) as settings:
        library = json.load(settings)["libraries"][library_name]
    if is_across_nodes:
        library = library["across_nodes"]
    check_settings(library)
    if len(arguments) < 3:
        print(f"skipped: {library_name}: not built" + (f"; tools/dev/peers {library_name} gets it" if "pypi" in library else ""))
        sys.exit(77)
    launcher = (library["launch"]["command"] or [sys.executable])[0].replace("{environment}", environment_of(os.path.abspath(arguments[2])))
    if shutil.which(launcher) is None:
        print(f"skipped: {library_name}: {launcher} is not installed")
        sys.exit(77)
    if is_across_nodes and testbed.why_unavailable():
        print("skipped: " + testbed.why_unavailable())
        sys.exit(77)
    program = os.path.abspath(arguments[2])

    def check_all(bed=None):
        if sum(check_setting(library, library_name, setting, program) for setting in library["settings"]) == 0:
            fail("nothing was measured")
        # Whatever was measured went over the links.
        if bed is not None and bed.traffic(0)["tx_bytes"] < 10 * len(library["settings"]) << 20:
            fail(f"the links carried {bed.traffic(0)}")

    sys.exit(testbed.run_in_bed(check_all, nodes=RANKS) if is_across_nodes else check_all())


main()
