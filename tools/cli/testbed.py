#!/usr/bin/env python3
"""A bed of nodes on one machine: network namespaces joined by a bridge, with rates, cuts, losses and awkward interfaces.

Knows iproute2 and nothing of tutti or any other library.

    testbed.py --nodes 2 --rate 1gbit -- COMMAND...   makes a bed and runs COMMAND in its hub; the bed ends with it
    testbed.py in 1 -- COMMAND...                     inside a bed: runs COMMAND in node 1
    testbed.py each -- COMMAND...                     inside a bed: runs it in every node at once (TESTBED_NODE tells which)
    testbed.py ranks 2 -- COMMAND...                  inside a bed: two ranks in each node; in COMMAND {rank}, {size}, {local_rank},
                                                      {local_size} and {node} are replaced; standard input is rank 0's
    testbed.py cut 1 | heal 1 | lose 1 0.02 | rate 1 100mbit | traffic
    testbed.py [-OPTION] HOST WORDS...                inside a bed: as ssh would, for launchers that start programs on hosts

A node has its own network, host name, /etc/hosts and /sys; processes, /tmp and memory files are common, so that a
benchmark can meet on a shared page. The CPUs are shared out among the nodes; neighbours share one where nodes outnumber
them. Node k is called node<k> and has 10.77.0.<k+1> on eth0 (rail r: 10.<77+r>.0.0/24 on eth<r>).
The hub holds the bridge, br0, 10.77.0.254: a launcher runs there.

All of it lives in namespaces without names, whose first process dies with the process that made the bed: nothing appears in
the machine's own network or in /run/netns, several beds may use the same addresses, and a killed owner leaves nothing.
As a module: run_in_bed(body, nodes=2) calls body(bed) in the hub, in a process of its own, and returns its exit status.
Exit status 77: this system does not let us make one (see why_unavailable). netem is not used: many kernels lack it.
"""
# Longer than 500 lines because it is installed, and runs in a bed's nodes, as one file.
import argparse
import ctypes
import functools
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import traceback

SKIPPED = 77
HOLDERS, RAILS, ADDRESSES, NETWORK, HUB, PROGRAM, NODE = (
    f"TESTBED_{name}" for name in ("HOLDERS", "RAILS", "ADDRESSES", "NETWORK", "HUB", "PROGRAM", "NODE"))
HUB_HOST = 254

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER, CLONE_NEWPID, CLONE_NEWNET = 0x20000, 0x4000000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_BIND, MS_REC, MS_PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x40000
MNT_DETACH, PR_SET_PDEATHSIG = 2, 1

libc = ctypes.CDLL(None, use_errno=True)


def system_call(name, *arguments):
    """A function of libc; OSError where it fails."""
    words = [a.encode() if isinstance(a, str) else a for a in arguments]
    if getattr(libc, name)(*words) != 0:
        error = ctypes.get_errno()
        raise OSError(error, f"{name}: {os.strerror(error)}")


def mount(source, target, kind, flags):
    system_call("mount", source, target, kind, ctypes.c_ulong(flags), None)


def die_with_parent(parent):
    """To be called in a new process; `parent` is the process id that its parent had (0: not visible from here)."""
    system_call("prctl", PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


def unshare(flags):
    """New namespaces. Without privileges they belong to a user namespace in which we have them, where the system lets us."""
    try:
        system_call("unshare", flags)
    except PermissionError:
        user, group = os.getuid(), os.getgid()
        system_call("unshare", flags | CLONE_NEWUSER)
        for path, text in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open("/proc/self/" + path, "w", encoding="ascii") as file:
                file.write(text)


def use_own_sysfs():
    """/sys shows the interfaces of the namespace that mounted it. The control groups under it do not change."""
    groups = os.open("/sys/fs/cgroup", os.O_PATH) if os.path.isdir("/sys/fs/cgroup") else -1
    mount("sysfs", "/sys", "sysfs", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    if groups >= 0:
        mount(f"/proc/self/fd/{groups}", "/sys/fs/cgroup", None, MS_BIND | MS_REC)
        os.close(groups)


def use_hosts_file(text):
    """Lays a file over /etc/hosts; it loses its own name at once, so nothing has to be removed."""
    handle, path = tempfile.mkstemp()
    with os.fdopen(handle, "w", encoding="ascii") as file:
        os.chmod(path, 0o644)
        file.write(text)
    mount(path, "/etc/hosts", None, MS_BIND)
    os.unlink(path)


def command_path(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def run_in_children(flags, body):
    """Calls body() in a child of a child, in new namespaces; its exit status. Both die with this process."""
    def in_child(parent, function):
        sys.stdout.flush()
        sys.stderr.flush()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                die_with_parent(parent)
                status = function() or 0
            except SystemExit as end:
                status = end.code if isinstance(end.code, int) else int(end.code is not None)
                if isinstance(end.code, str):
                    print(end.code, file=sys.stderr)
            except BaseException:  # whatever it was, a forked child must not go on with its parent's work
                traceback.print_exc()
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(status)
        return child

    def wait(child):
        """Takes in orphans, too: inside of the process namespace they become ours."""
        while True:
            try:
                ended, status = os.wait()
            except KeyboardInterrupt:
                continue  # the child got it as well and decides
            if ended == child:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else 128 - code

    def guard():
        unshare(flags)
        # Seen from inside, the first process has no parent.
        return wait(in_child(0, first_process))

    def first_process():
        # A process of its own for the body: the first one of a namespace ignores signals that it does not expect.
        return wait(in_child(1, body))

    return wait(in_child(os.getpid(), guard))


class Bed:
    """The bed around this process, seen from any of its namespaces."""

    def __init__(self, holders, rails):
        self.holders, self.rails = holders, rails  # process ids, by node

    @staticmethod
    def current():
        """The bed that this process runs in; None outside."""
        text = os.environ.get(HOLDERS)
        return Bed(list(map(int, text.split(","))), int(os.environ[RAILS])) if text else None

    @property
    def nodes(self):
        return len(self.holders)

    def address(self, node, rail=0):
        return f"10.{77 + rail}.0.{node + 1}"

    def address6(self, node, rail=0):
        return f"fd77:{rail}::{node + 1}"

    def node_of(self, host):
        """By address or name; None if it is no node."""
        for node in range(self.nodes):
            names = [f"node{node}"] + [a(node, rail) for rail in range(self.rails) for a in (self.address, self.address6)]
            if host in names:
                return node
        return None

    def prefix(self, node):
        """Words that make what follows run in the node, as the same process."""
        cpus = ",".join(map(str, sorted(os.sched_getaffinity(self.holders[node]))))
        return ["taskset", "--cpu-list", cpus, "nsenter", "--target", str(self.holders[node]), "--mount", "--uts", "--net", "--",
                "env", "-C", os.getcwd(), f"{NODE}={node}"]

    def run(self, node, command, **options):
        return subprocess.run(self.prefix(node) + list(map(str, command)), check=False, **options)

    def popen(self, node, command, **options):
        return subprocess.Popen(self.prefix(node) + list(map(str, command)), **options)

    def output(self, node, command):
        """Standard output of a command that has to succeed. Node None: the hub."""
        words = list(map(str, command))
        done = subprocess.run(self.prefix(node) + words if node is not None else words, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{shlex.join(words)}: {done.stderr.strip() or done.returncode}")
        return done.stdout

    # -- the link of a node: eth<rail> in it, n<node>r<rail> in the hub. Changes apply to both directions.

    def ends(self, node, rail=0):
        return ((node, f"eth{rail}"), (None, f"n{node}r{rail}"))

    def rate(self, node, rate, rail=0):
        """Limits the link in each direction to a rate of tc's (1gbit); None: no limit."""
        for place, device in self.ends(node, rail):
            self.output(place, [IP, "link", "set", device, "alias", f"rate={rate or ''}"])  # for heal()
            self.set_queue(place, device, rate)

    def set_queue(self, place, device, rate):
        queues = json.loads(self.output(place, [TC, "-j", "qdisc", "show", "dev", device, "root"]))
        if any(queue.get("kind") in ("tbf", "blackhole") for queue in queues):
            self.output(place, [TC, "qdisc", "del", "dev", device, "root"])
        if rate:
            self.output(place, [TC, "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "256k", "latency", "50ms"])

    def use_reno(self):
        """For connections made from now on that are to outlive a cut: with BBR, some systems' default, they then rest for seconds."""
        for node in range(self.nodes):
            self.output(node, ["sh", "-c", "echo reno > /proc/sys/net/ipv4/tcp_congestion_control"])

    def cut(self, node, rail=0):
        """Nothing passes any more, and nobody is told: the link stays up."""
        for place, device in self.ends(node, rail):
            self.output(place, [TC, "qdisc", "replace", "dev", device, "root", "blackhole"])

    def heal(self, node, rail=0):
        for place, device in self.ends(node, rail):
            alias = self.link(place, device).get("ifalias", "")
            self.set_queue(place, device, alias.removeprefix("rate="))

    def lose(self, node, share, rail=0):
        """Drops this share of the packets (a random one each) in each direction; 0: none. Needs nftables."""
        for place, device in self.ends(node, rail):
            chance = f"numgen random mod 1000000 < {round(share * 1000000)}" if share < 1 else ""
            rule = f"meta protocol {{ ip, ip6 }} {chance} counter drop"
            table = f"lose_{device}"
            script = f"table netdev {table} {{}}; delete table netdev {table}"
            if share > 0:
                script += f"; table netdev {table} {{ chain in {{ type filter hook ingress device {device} priority 0; {rule}; }}; }}"
            self.output(place, [NFT, script])

    def lost(self, node, rail=0):
        """How many packets lose() has dropped since it was called."""
        total = 0
        for place, device in self.ends(node, rail):
            rules = json.loads(self.output(place, [NFT, "-j", "list", "table", "netdev", f"lose_{device}"]))["nftables"]
            for rule in rules:
                total += sum(part["counter"]["packets"] for part in rule.get("rule", {}).get("expr", []) if "counter" in part)
        return total

    def link(self, place, device):
        return json.loads(self.output(place, [IP, "-s", "-j", "link", "show", "dev", device]))[0]

    def traffic(self, node, rail=0):
        """Traffic of the node so far: tx_bytes, tx_packets, rx_bytes, rx_packets."""
        counts = self.link(node, f"eth{rail}")["stats64"]
        return {f"{way}_{what}": counts[way][what] for way in ("tx", "rx") for what in ("bytes", "packets")}


IP, TC, NFT = (command_path(name) or name for name in ("ip", "tc", "nft"))


def why_unavailable(needs_loss=False):
    """Why no bed can be made here; empty if one can."""
    missing = [name for name in ("ip", "tc", "nsenter", "taskset") + (("nft",) if needs_loss else ()) if command_path(name) is None]
    if missing:
        return f"{', '.join(missing)} not found (Debian: iproute2, util-linux, nftables)"
    def try_it():
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        prepare_hub()
        for words in (["link", "add", "br0", "type", "bridge"], ["link", "add", "v0", "type", "veth", "peer", "name", "v1"]):
            if subprocess.run([IP, *words], check=False).returncode != 0:
                return 1
        return 0
    if run_in_children(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET, try_it) != 0:
        return "no namespaces or no bridge of our own here (that takes root with CAP_SYS_ADMIN and CAP_NET_ADMIN, or user namespaces)"
    return ""


def prepare_hub():
    mount("none", "/", None, MS_REC | MS_PRIVATE)
    mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    use_own_sysfs()


def start_holder(node, hosts, cpus):
    """The process whose namespaces and CPUs are the node's. Returns when they exist."""
    ready, report = os.pipe()
    parent = os.getpid()
    holder = os.fork()
    if holder == 0:
        try:
            die_with_parent(parent)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            system_call("unshare", CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET)
            use_own_sysfs()
            os.sched_setaffinity(0, cpus)
            name = f"node{node}"
            system_call("sethostname", name, len(name))
            use_hosts_file(hosts)
            for descriptor in (0, 1, 2):  # a pipe of the owner's must not stay open because of us
                os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
            os.write(report, b"1")
            os.closerange(3, 1 << 16)
            while True:
                signal.pause()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(report)
    with os.fdopen(ready, "rb") as file:
        if file.read(1) != b"1":
            raise RuntimeError(f"node {node} cannot be made")
    return holder


def hosts_text(bed, node, is_awkward):
    """Awkward: as Debian's installer writes it, the own name leads to an address that nobody else reaches."""
    lines = ["127.0.0.1 localhost", "::1 localhost ip6-localhost"]
    if is_awkward:
        lines.append(f"127.0.1.1 node{node}")
    lines += [f"{bed.address(k)} node{k}" for k in range(bed.nodes) if not (is_awkward and k == node)]
    return "\n".join(lines) + "\n"


def batch(bed, place, lines):
    """Commands of ip(8), one process for all of them. Place None: the hub."""
    words = [IP, "-batch", "-"]
    done = subprocess.run(bed.prefix(place) + words if place is not None else words, input="\n".join(lines) + "\n",
                          capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"ip: {done.stderr.strip()}")


def zoo_lines(node):
    """Interfaces such as a node of a cluster has, none of which leads to another node; they come before eth0."""
    lines = ["link add docker0 type bridge", "address add 172.17.0.1/16 dev docker0", "link set docker0 up",
             f"link add flannel.1 type vxlan id {node + 1} dstport 8472", f"address add 10.244.{node}.0/32 dev flannel.1",
             "link set flannel.1 up"]
    if os.path.exists("/dev/net/tun"):
        lines += ["tuntap add mode tun name tailscale0", f"address add 100.64.0.{node + 1}/32 dev tailscale0", "link set tailscale0 up"]
    for k in range(20):  # of containers that are gone: every second one has an address, the same in all nodes
        lines += [f"link add veth{k} type veth peer name gone{k}", f"link set veth{k} up"]
        if k % 2 == 0:
            lines.append(f"address add 192.168.{k}.1/24 dev veth{k}")
    return lines


def build(nodes, rails, has_ipv6, has_zoo, mtu):
    """In the hub: the nodes with their links."""
    bed = Bed([0] * nodes, rails)
    cpus = sorted(os.sched_getaffinity(0))
    for node in range(nodes):
        first = node * len(cpus) // nodes
        share = cpus[first:max(first + 1, (node + 1) * len(cpus) // nodes)]
        bed.holders[node] = start_holder(node, hosts_text(bed, node, has_zoo), share)
    use_hosts_file(hosts_text(bed, -1, False))
    lines = ["link set lo up"]
    for rail in range(rails):
        lines += [f"link add br{rail} type bridge forward_delay 0 mcast_snooping 0", f"link set br{rail} mtu {mtu} up",
                  f"address add 10.{77 + rail}.0.{HUB_HOST}/24 dev br{rail}"]
        if has_ipv6:
            lines.append(f"address add fd77:{rail}::{HUB_HOST}/64 dev br{rail} nodad")
    batch(bed, None, lines)
    for node, holder in enumerate(bed.holders):
        if has_zoo:
            batch(bed, node, zoo_lines(node))
        lines, inside = [], ["link set lo up"]
        for rail in range(rails):
            port = f"n{node}r{rail}"
            lines += [f"link add {port} mtu {mtu} type veth peer name eth{rail} mtu {mtu} netns {holder}",
                      f"link set {port} master br{rail} up"]
            inside += [f"address add {bed.address(node, rail)}/24 dev eth{rail}", f"link set eth{rail} up"]
            if has_ipv6:
                inside.append(f"address add {bed.address6(node, rail)}/64 dev eth{rail} nodad")
        batch(bed, None, lines)
        batch(bed, node, inside)
    os.environ.update({HOLDERS: ",".join(map(str, bed.holders)), RAILS: str(rails), PROGRAM: os.path.abspath(__file__),
                       ADDRESSES: ",".join(map(bed.address, range(nodes))), NETWORK: "10.77.0.0/24",
                       HUB: f"10.77.0.{HUB_HOST}"})
    return bed


def run_in_bed(body, nodes=2, rate=None, loss=0.0, rails=1, has_ipv6=False, has_zoo=False, mtu=1500):
    """Calls body(bed) in the hub of a new bed; returns its exit status (body's return value; None is 0), 1 for an exception."""
    def inside():
        prepare_hub()
        bed = build(nodes, rails, has_ipv6, has_zoo, mtu)
        for node in range(nodes):
            for rail in range(rails):
                if rate:
                    bed.rate(node, rate, rail)
                if loss > 0:
                    bed.lose(node, loss, rail)
        return body(bed)

    if not 1 <= nodes < HUB_HOST:
        raise ValueError(f"{nodes} nodes: there can be 1 to {HUB_HOST - 1}")
    return run_in_children(CLONE_NEWPID | CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWNET, inside)


# -- the command line

def run_ranks(bed, local_size, command):
    """The exit status of the first rank that ends with another than 0; the others are then killed."""
    processes, size = {}, local_size * bed.nodes
    for rank in range(size):
        values = {"rank": rank, "size": size, "local_rank": rank % local_size, "local_size": local_size, "node": rank // local_size}
        words = list(command)
        for name, value in values.items():
            words = [word.replace("{" + name + "}", str(value)) for word in words]
        process = bed.popen(rank // local_size, words, stdin=None if rank == 0 else subprocess.DEVNULL,
                            preexec_fn=functools.partial(die_with_parent, os.getpid()))
        processes[process.pid] = process
    while processes:
        pid, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        if processes.pop(pid, None) is not None and code != 0:
            for other in processes.values():
                other.kill()
            return code if code > 0 else 128 - code
    return 0


def act_as_ssh(bed, words):
    """HOST WORDS..., where some launchers put options of ssh in front."""
    while words and words[0].startswith("-"):
        words = words[1:]
    node = bed.node_of(words[0]) if words else None
    if node is None:
        sys.exit(f"testbed.py: no node of this bed: {shlex.join(words)}")
    command = bed.prefix(node) + ["sh", "-c", " ".join(words[1:])]
    os.execvp(command[0], command)


def act_on_node(bed, node, words):
    """A verb for one node of the bed: in, cut, heal, lose, rate."""
    verb, rest = words[0], [word for word in words[1:] if word != "--"]
    if verb == "in":
        command = bed.prefix(node) + words[words.index("--") + 1 if "--" in words else 2:]
        os.execvp(command[0], command)
    elif verb == "lose":
        bed.lose(node, float(rest[1]))
    elif verb == "rate":
        bed.rate(node, None if rest[1] == "none" else rest[1])
    else:
        getattr(bed, verb)(node)


def inner_command(words):
    # More than 15 decisions because each command of a bed is one.
    bed = Bed.current()
    if bed is None:
        sys.exit(f"testbed.py {words[0]}: not inside a bed")
    verb, rest = words[0], [word for word in words[1:] if word != "--"]
    if verb == "traffic":
        print(json.dumps([bed.traffic(node) for node in range(bed.nodes)]))
    elif verb == "ranks":
        sys.exit(run_ranks(bed, int(rest[0]), words[words.index("--") + 1:]))
    elif verb == "each":
        running = [bed.popen(node, rest) for node in range(bed.nodes)]
        sys.exit(max(process.wait() for process in running))
    else:
        node = int(rest[0]) if rest and rest[0].isdigit() else bed.node_of(rest[0] if rest else "")
        if node is None or node >= bed.nodes:
            sys.exit(f"testbed.py {verb}: expected a node: 0 to {bed.nodes - 1}, its name or address")
        act_on_node(bed, node, words)


def main():
    if sys.argv[1:2] and sys.argv[1] in ("in", "each", "ranks", "cut", "heal", "lose", "rate", "traffic"):
        inner_command(sys.argv[1:])
        return
    if Bed.current() is not None:
        act_as_ssh(Bed.current(), sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2)
    parser.add_argument("--rate", help="of every link, in each direction, as tc takes it: 1gbit")
    parser.add_argument("--loss", type=float, default=0, help="share of the packets that each link drops in each direction")
    parser.add_argument("--rails", type=int, default=1, help="links of a node, each to a bridge of its own")
    parser.add_argument("--mtu", type=int, default=1500)
    parser.add_argument("--ipv6", action="store_true", help="fd77:<rail>::<node+1> as well")
    parser.add_argument("--zoo", action="store_true", help="interfaces and a hosts file such as lead programs astray")
    parser.add_argument("command", nargs=argparse.REMAINDER, metavar="-- COMMAND")
    arguments = parser.parse_args()
    command = arguments.command[1:] if arguments.command[:1] == ["--"] else arguments.command
    if not command:
        parser.error("no command")
    reason = why_unavailable(needs_loss=arguments.loss > 0)
    if reason:
        print(f"testbed.py: {reason}", file=sys.stderr)
        sys.exit(SKIPPED)

    def body(bed):
        code = subprocess.run(command, check=False).returncode
        return code if code >= 0 else 128 - code

    sys.exit(run_in_bed(body, nodes=arguments.nodes, rate=arguments.rate, loss=arguments.loss, rails=arguments.rails,
                        has_ipv6=arguments.ipv6, has_zoo=arguments.zoo, mtu=arguments.mtu))


if __name__ == "__main__":
    main()
