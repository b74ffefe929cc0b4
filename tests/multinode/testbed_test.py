#!/usr/bin/env python3
"""Tests of the bed itself: that nodes reach each other, that what is asked of a link happens, and that nothing is left behind.

Knows no library that would run in it. Usage: testbed_test.py PART; exit status 77 is "skipped".
"""
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "cli"))
import testbed  # pylint: disable=wrong-import-position

PATIENCE_SECONDS = 20
TESTBED = os.path.abspath(testbed.__file__)
BYTES = 4 << 20

# Receives what comes over one connection, then says how much it was.
SINK = """
import socket, sys
listener = socket.create_server((sys.argv[1], 5000), family=socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET)
print("ready", flush=True)
connection, _ = listener.accept()
got = 0
while piece := connection.recv(1 << 16):
    got += len(piece)
print(got, flush=True)
"""
SOURCE = """
import socket, sys
with socket.create_connection((sys.argv[1], 5000)) as connection:
    connection.sendall(bytes(int(sys.argv[2])))
"""
# Datagrams that nobody has to receive; an error of the sender's ends it with a status.
DATAGRAMS = """
import socket, sys
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for _ in range(int(sys.argv[2])):
    sender.sendto(bytes(100), (sys.argv[1], 9))
"""


def expect(condition, what):
    """Ends the process at once: whatever it waits for would not come, and what it started ends with it."""
    if not condition:
        print("FAILED: " + what, flush=True)
        os._exit(1)


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        expect(time.monotonic() < deadline, f"in vain: {what}")
        time.sleep(0.02)


def python(*words):
    return [sys.executable, "-c", *words]


def transfer(bed, address, count=BYTES, name=None):
    """From node 0 to the last node, which has this address and perhaps a name."""
    with bed.popen(bed.nodes - 1, python(SINK, address), stdout=subprocess.PIPE, text=True) as sink:
        expect(sink.stdout.readline() == "ready\n", "a listener")
        expect(bed.run(0, python(SOURCE, name or address, count)).returncode == 0, f"a connection to {address}")
        expect(sink.stdout.readline() == f"{count}\n", f"all bytes to {address}")


def in_bed(body, needs_loss=False, **options):
    reason = testbed.why_unavailable(needs_loss)
    if reason:
        print("skipped: " + reason)
        sys.exit(testbed.SKIPPED)
    expect(testbed.run_in_bed(body, **options) == 0, f"{body.__name__} in a bed {options}")


def test_links():
    """Names, addresses, rails; who may see what."""
    def body(bed):
        expect(bed.nodes == 3 and testbed.Bed.current().holders == bed.holders, "the environment tells about the bed")
        for node in range(3):
            expect(bed.output(node, ["hostname"]) == f"node{node}\n", "a host name of its own")
            expect(bed.output(node, ["ls", "/sys/class/net"]).split() == ["eth0", "eth1", "lo"], "its own interfaces in /sys")
            expect(bed.output(node, ["env", "-0"]).count(f"TESTBED_NODE={node}\0") == 1, "a node knows its number")
        expect(bed.output(1, ["pwd"]).strip() == os.getcwd(), "the folder stays")
        expect(bed.node_of("node2") == bed.node_of("10.77.0.3") == bed.node_of("10.78.0.3") == bed.node_of("fd77:1::3") == 2, "hosts")
        expect(bed.node_of("10.77.0.9") is None, "no such node")
        before = [bed.traffic(node) for node in range(3)]
        for address in (bed.address(2), bed.address(2, rail=1), bed.address6(2), bed.address6(2, rail=1)):
            transfer(bed, address)
        transfer(bed, bed.address(2), name="node2")
        after = [bed.traffic(node) for node in range(3)]
        # Three of the five went over eth0.
        for node, way in ((0, "tx_bytes"), (2, "rx_bytes")):
            sent = after[node][way] - before[node][way]
            expect(3 * BYTES <= sent <= 4 * BYTES, f"node {node}: {way} grew by {sent}")
        expect(after[1]["tx_bytes"] - before[1]["tx_bytes"] < BYTES, "node 1 has sent nothing")
        # A program in a node is one process, and a signal reaches it.
        sleeper = bed.popen(1, ["sleep", "1000"])
        sleeper.terminate()
        expect(sleeper.wait(PATIENCE_SECONDS) == -signal.SIGTERM, "a signal to a program of a node")
        # From inside: the command line.
        expect(subprocess.check_output([TESTBED, "in", "10.77.0.2", "--", "hostname"], text=True) == "node1\n", "testbed.py in")
        each = subprocess.run([TESTBED, "each", "--", "sh", "-c", "hostname; exit $TESTBED_NODE"], stdout=subprocess.PIPE, check=False)
        expect(each.returncode == 2 and sorted(each.stdout.split()) == [b"node0", b"node1", b"node2"], "testbed.py each")
        expect(len(json.loads(subprocess.check_output([TESTBED, "traffic"]))) == 3, "testbed.py traffic")
        ssh = subprocess.check_output([TESTBED, "-x", "10.77.0.3", "hostname;", "echo", "$0 a  b"], text=True)
        expect(ssh == "node2\nsh a b\n", f"as ssh: {ssh}")
        return 0

    in_bed(body, nodes=3, rails=2, has_ipv6=True)
    # Failures of all kinds reach the caller.
    for function in (lambda _: 3, lambda _: sys.exit("a body that ends so is a failure")):
        expect(testbed.run_in_bed(function) != 0, "a failure inside is a failure outside")
    done = subprocess.run([TESTBED, "--nodes", "1", "--", "sh", "-c", "exit 9"], check=False)
    expect(done.returncode == 9, "the command's status is the bed's")


def test_ranks():
    """Several in a node, CPUs shared out, and the end of all with the first that fails."""
    def body(bed):
        words = ["{rank}/{size}", "{local_rank}/{local_size}", "{node}"]
        done = subprocess.run([TESTBED, "ranks", "2", "--", "sh", "-c", 'echo "$(cat)$(hostname) $*"', "-", *words], input="in:", text=True,
                              stdout=subprocess.PIPE, check=False)
        lines = sorted(done.stdout.splitlines())
        expect(lines == ["in:node0 0/4 0/2 0", "node0 1/4 1/2 0", "node1 2/4 0/2 1", "node1 3/4 1/2 1"], f"ranks: {lines}")
        script = "test {rank} != 2 || exit 6; sleep 1000"
        expect(subprocess.run([TESTBED, "ranks", "2", "--", "sh", "-c", script], check=False).returncode == 6, "a rank that fails")
        cpus = [set(eval(bed.output(node, python("import os; print(os.sched_getaffinity(0))")))) for node in range(2)]
        expect(cpus[0] | cpus[1] == os.sched_getaffinity(0), "all CPUs are used")
        expect(len(os.sched_getaffinity(0)) < 2 or not cpus[0] & cpus[1], f"by one node each: {cpus}")

    def crowded(bed):
        cpus = sorted(os.sched_getaffinity(0))
        nodes = range(2 * len(cpus))
        shares = [eval(bed.output(node, python("import os; print(os.sched_getaffinity(0))"))) for node in nodes]
        expect(shares == [{cpus[node // 2]} for node in nodes], f"two nodes on each CPU: {shares}")

    in_bed(body)
    in_bed(crowded, nodes=2 * len(os.sched_getaffinity(0)))


def test_rate():
    def queue(bed, place, device):
        return json.loads(bed.output(place, ["tc", "-s", "-j", "qdisc", "show", "dev", device, "root"]))[0]

    def body(bed):
        for place, device in bed.ends(0) + bed.ends(1):
            expect(queue(bed, place, device)["options"]["rate"] == 25000000, f"{device}: 200 Mbit/s in bytes")
        transfer(bed, bed.address(1))
        expect(queue(bed, 0, "eth0")["overlimits"] > 0, "packets have waited for the rate")
        bed.rate(0, "300mbit")
        expect(queue(bed, 0, "eth0")["options"]["rate"] == 37500000, "another rate")
        bed.cut(0)
        expect(queue(bed, 0, "eth0")["kind"] == "blackhole", "a cut link has no rate")
        bed.heal(0)
        expect(queue(bed, 0, "eth0")["options"]["rate"] == 37500000, "the rate is back after a cut")
        bed.rate(0, None)
        expect(queue(bed, 0, "eth0")["kind"] != "tbf", "no rate")
        transfer(bed, bed.address(1))

    in_bed(body, rate="200mbit")


def test_cut():
    """Silence: no error, nothing arrives; afterwards all is as before, and a connection outlives it."""
    def body(bed):
        transfer(bed, bed.address(1), 1)
        bed.cut(1)
        before = bed.traffic(1)["rx_packets"]
        expect(bed.run(0, python(DATAGRAMS, bed.address(1), 50)).returncode == 0, "a sender is not told of a cut")

        def dropped():
            return json.loads(bed.output(None, ["tc", "-s", "-j", "qdisc", "show", "dev", "n1r0", "root"]))[0]["drops"]

        wait_until(lambda: dropped() >= 50, "the cut link swallows what is sent")
        expect(bed.traffic(1)["rx_packets"] == before, "nothing arrives")
        expect(bed.link(1, "eth0")["operstate"] == "UP", "the link looks well")
        bed.heal(1)
        transfer(bed, bed.address(1))
        with bed.popen(1, python(SINK, bed.address(1)), stdout=subprocess.PIPE, text=True) as sink:
            expect(sink.stdout.readline() == "ready\n", "a listener")
            with bed.popen(0, python(SOURCE, bed.address(1), 32 << 20)) as source:
                bed.cut(0)
                bed.heal(0)
                expect(source.wait() == 0 and sink.stdout.readline() == f"{32 << 20}\n", "a connection over a cut that is healed")

    in_bed(body)


def test_loss():
    def body(bed):
        # A packet inside of the machine may carry 64 KiB, so one transfer of a few dozen may lose none.
        def has_lost():
            transfer(bed, bed.address(1))
            return bed.lost(0) + bed.lost(1) > 0

        wait_until(has_lost, "transfers over a link that drops one packet of a hundred lose some")
        bed.lose(0, 0.5)
        bed.lose(1, 0.5)
        expect(bed.run(0, python(DATAGRAMS, bed.address(1), 1000)).returncode == 0, "a sender is not told of losses")
        wait_until(lambda: bed.lost(0) >= 400 and bed.lost(1) >= 180, "of 1000, half is lost at one link and half of the rest at the other")
        expect(bed.lost(0) <= 600 and bed.lost(1) <= 320, "no more")
        bed.lose(0, 0)
        bed.lose(1, 1)
        expect(bed.run(0, python(DATAGRAMS, bed.address(1), 100)).returncode == 0, "datagrams into nothing")
        wait_until(lambda: bed.lost(1) >= 100, "all are lost")
        bed.lose(1, 0)
        transfer(bed, bed.address(1))

    in_bed(body, needs_loss=True, loss=0.01)


def test_zoo():
    def body(bed):
        for node in range(2):
            addresses = bed.output(node, ["ip", "-4", "-o", "address"])
            for device, address in (("docker0", "172.17.0.1/16"), ("flannel.1", f"10.244.{node}.0/32"), ("veth0", "192.168.0.1/24"),
                                    ("eth0", f"10.77.0.{node + 1}/24")):
                expect(f"{device}    inet {address}" in addresses, f"{device} {address} in:\n{addresses}")
            lookup = python("import socket; print(socket.gethostbyname(socket.gethostname()))")
            expect(bed.output(node, lookup) == "127.0.1.1\n", "the own name leads nowhere")
            expect(addresses.index("docker0") < addresses.index("eth0"), "the interface that works is not the first")
        transfer(bed, bed.address(1), name="node1")

    in_bed(body, has_zoo=True)


def descendants(pid):
    found = []
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        for child in file.read().split():
            found += [int(child)] + descendants(int(child))
    return found


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_killed():
    """The owner is killed: its processes and with them the namespaces go. The machine's own network never sees anything."""
    in_bed(lambda bed: 0)

    with_us = functools.partial(testbed.die_with_parent, os.getpid())

    def surroundings():
        names = os.listdir("/run/netns") if os.path.isdir("/run/netns") else []
        return sorted(name for _, name in socket.if_nameindex()), sorted(names)

    before = surroundings()
    for victim in ("owner", "first child"):
        command = [TESTBED, "--nodes", "2", "--zoo", "--", "sh", "-c", f"'{TESTBED}' each -- sh -c 'echo ready; exec sleep 1000'"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=with_us) as owner:
            for _ in range(2):
                expect(owner.stdout.readline() == "ready\n", "a program in each node")
            inside = descendants(owner.pid)
            expect(len(inside) >= 7, f"guard, first process, body, two nodes, two programs; found {inside}")
            expect(surroundings() == before, "nothing of a bed shows outside")
            os.kill(owner.pid if victim == "owner" else inside[0], signal.SIGKILL)
            owner.wait()
        wait_until(lambda: not any(map(is_running, inside)), f"the end of {inside} after the {victim}'s")
    expect(surroundings() == before, "nothing is left")
    # Two beds at once, with equal addresses.
    with subprocess.Popen([TESTBED, "--nodes", "2", "--", "cat"], stdin=subprocess.PIPE, preexec_fn=with_us) as other:
        in_bed(lambda bed: transfer(bed, bed.address(1)))
        other.stdin.close()
        expect(other.wait(PATIENCE_SECONDS) == 0, "the other bed")


if __name__ == "__main__":
    globals()["test_" + sys.argv[1]]()
