#!/usr/bin/env python3
"""Starts one program with real launchers and looks at what its ranks found out; a test per launcher.
Knows command lines and printed lines; skips (77) with the reason where a launcher is not installed.

usage: launchers_test.py [--nodes] [--run TUTTI_RUN] LAUNCHER PROGRAM [PROGRAM built with the launcher's MPI]
    --nodes: the ranks are on two nodes of a bed (tools/cli/testbed.py), started from a third
"""

import argparse
import ctypes
import getpass
import http.server
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

TESTBED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "cli", "testbed.py")
sys.path.insert(0, os.path.dirname(TESTBED))
import testbed  # pylint: disable=wrong-import-position

SECONDS = 60  # no launcher takes that long; a test that does has failed
FOREIGN = re.compile(r"^(TUTTI_|PMI|PMIX_|OMPI_|SLURM_|MPI_|HOROVOD_|HYDI_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_)")

program = None
mpi_program = None
bed = None


def skip(reason):
    print("skipped: " + reason)
    sys.exit(77)


def clean_environment():
    """This process may itself have been started by a launcher."""
    return {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}


def is_open_mpi(command):
    done = subprocess.run([command, "--version"], capture_output=True, text=True, timeout=SECONDS, check=False)
    return "Open MPI" in done.stdout + done.stderr


def find_command(names, is_right=lambda path: True):
    for name in names:
        path = shutil.which(name)
        if path and is_right(path):
            return path
    return None


def command_path(name):
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


class LauncherTest(unittest.TestCase):
    """Common parts of all launchers: how to run, and the expected lines."""

    # libpmix and its threads keep memory to the end of the process. Leaks of tutti show under other launchers,
    # which start the same program.
    ignores_leaks = False

    def run_command(self, command, **environment):
        if self.ignores_leaks:
            environment["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False,
                              env={**clean_environment(), **environment}, stdin=subprocess.DEVNULL)
        self.output = " ".join(command) + "\n" + done.stdout + done.stderr
        return done

    def expect(self, done, lines, status=0):
        """These lines, whatever their order, and that exit status."""
        for line in lines:
            self.assertIn(line, done.stdout.splitlines(), self.output)
        if status is not None:
            self.assertEqual(done.returncode, status, self.output)

    def expect_places(self, done, launcher, nodes, node_numbers=None):
        """`nodes`: the node of each rank; with one store round trip after the other and an orderly end."""
        size = len(nodes)
        for rank, node in enumerate(nodes):
            number = node if node_numbers is None else node_numbers[node]
            place = (f"{launcher}: rank {rank} of {size}, local {nodes[:rank].count(node)} of {nodes.count(node)}, "
                     f"node {number}")
            self.expect(done, [place + ", store ok" * 3, f"rank {rank} leaves"])

    def expect_join(self, done, size):
        self.expect(done, [f"join: rank {r} of {size} sums" for r in range(size)])

    def expect_mixed(self, launch, size):
        """MPI and tutti in one program, in every order in which both can live."""
        if mpi_program is None:
            self.skipTest("no program with this MPI")
        for word in ("mpi_first", "mpi_late", "mpi_second", "mpi_inside"):
            done = self.run_command(launch(size, mpi_program, word))
            self.expect(done, [f"MPI: rank {r} sums" for r in range(size)])
            text = "{}: rank {} sums" if word == "mpi_inside" else "{}: rank {} of " + str(size) + " sums"
            self.expect(done, [text.format(word, r) for r in range(size)])


class Hydra(LauncherTest):
    command = find_command(["mpiexec.hydra"])

    def launch(self, size, *words, options=()):
        return [self.command, *options, "-n", str(size), *words]

    def test_place_and_store(self):
        self.expect_places(self.run_command(self.launch(3, program, "place")), "pmi1", [0, 0, 0])

    def test_over_a_port(self):
        done = self.run_command(self.launch(3, program, "place", options=["-pmi-port"]))
        self.expect_places(done, "pmi1", [0, 0, 0])

    def test_two_pretended_nodes(self):
        done = self.run_command(self.launch(4, program, "place", options=["-launcher", "fork", "-hosts", "h1,h2"]))
        self.expect_places(done, "pmi1", [0, 1, 0, 1])
        done = self.run_command(
            self.launch(3, program, "place", options=["-launcher", "fork", "-hosts", "h1,h2", "-ppn", "2"]))
        self.expect_places(done, "pmi1", [0, 0, 1])

    def test_worlds(self):
        done = self.run_command(self.launch(4, program, "join"))
        self.expect_join(done, 4)
        self.expect(self.run_command(self.launch(1, program, "join")), ["join: rank 0 of 1 sums"])

    def test_child_of_fork(self):
        done = self.run_command(self.launch(2, program, "fork"))
        self.expect(done, [f"rank {r}: child 7, store ok" for r in range(2)])

    def test_a_rank_that_does_not_come(self):
        done = self.run_command(self.launch(3, program, "absent"))
        for rank in (1, 2):
            self.assertRegex(done.stdout, rf"rank {rank}: timeout: PMI-1 \(.*\): rank {rank} is in the fence, but "
                             r"not all of the 3 ranks have come", self.output)

    def test_a_program_of_several(self):
        """The first program finalizes PMI; the second one gets an error that says so."""
        done = self.run_command(self.launch(2, "sh", "-c", f"{program} join && {program} join; true"))
        self.expect_join(done, 2)
        self.assertIn("an earlier program of this rank", done.stdout, self.output)

    def test_a_closed_connection(self):
        done = self.run_command(self.launch(2, "sh", "-c", f"eval \"exec $PMI_FD>&-\"; {program} join; true"))
        self.assertRegex(done.stdout, r"invalid argument: PMI_FD=\d+ is not open in this process", self.output)

    def test_with_mpi(self):
        self.expect_mixed(self.launch, 3)

    def test_after_mpi(self):
        if mpi_program is None:
            self.skipTest("no program with MPICH")
        done = self.run_command(self.launch(2, mpi_program, "mpi_over"))
        self.assertIn("mpi_over: invalid argument: PMI_FD=", done.stdout, self.output)
        self.assertIn("MPI_Finalize has been called before", done.stdout, self.output)


class HydraOnNodes(LauncherTest):
    command = Hydra.command

    def launch(self, size, *words, options=()):
        hub = ["-localhost", f"10.77.0.{testbed.HUB_HOST}"]  # its name means nothing to the nodes
        return [self.command, *hub, "-launcher", "ssh", "-launcher-exec", TESTBED, "-hosts", "node0,node1", *options,
                "-n", str(size), *words]

    def test_place_and_store(self):
        for options in ([], ["-pmi-port"]):
            done = self.run_command(self.launch(4, program, "place", options=options))
            self.expect_places(done, "pmi1", [0, 1, 0, 1])

    def test_worlds(self):
        self.expect_join(self.run_command(self.launch(4, program, "join")), 4)


class OpenMpi(LauncherTest):
    command = find_command(["mpirun.openmpi", "mpirun"], is_open_mpi)
    ignores_leaks = True

    def launch(self, size, *words, options=()):
        as_root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        return [self.command, *as_root, "--oversubscribe", *options, "-n", str(size), *words]

    def setUp(self):
        done = self.run_command(self.launch(1, program, "place"))
        self.launcher = done.stdout.split(":")[0]

    def test_place_and_store(self):
        if self.launcher != "pmix":
            self.skipTest("built without PMIx, or libpmix is not there")
        self.expect_places(self.run_command(self.launch(3, program, "place")), "pmix", [0, 0, 0])

    def test_variables_alone(self):
        done = self.run_command(self.launch(2, program, "place"), TUTTI_LAUNCHER="openmpi")
        self.expect(done, [f"openmpi: rank {r} of 2, local {r} of 2, node -1" + ", unsupported: no store" * 3
                           for r in range(2)])
        done = self.run_command(self.launch(2, program, "join"), TUTTI_LAUNCHER="openmpi")
        self.expect_join(done, 2)

    def test_worlds(self):
        done = self.run_command(self.launch(4, program, "join"))
        self.expect_join(done, 4)

    def test_child_of_fork(self):
        if self.launcher != "pmix":
            self.skipTest("built without PMIx, or libpmix is not there")
        done = self.run_command(self.launch(2, program, "fork"))
        self.expect(done, [f"rank {r}: child 7, store ok" for r in range(2)])

    def test_a_rank_that_does_not_come(self):
        if self.launcher != "pmix":
            self.skipTest("built without PMIx, or libpmix is not there")
        done = self.run_command(self.launch(3, program, "absent"))
        for rank in (1, 2):
            self.assertRegex(done.stdout, rf"rank {rank}: timeout: PMIx \(.*\): rank 0 has not put missing in time",
                             self.output)

    def test_with_mpi(self):
        self.expect_mixed(self.launch, 3)

    def test_after_mpi(self):
        if mpi_program is None:
            self.skipTest("no program with Open MPI")
        done = self.run_command(self.launch(2, mpi_program, "mpi_over"))
        self.expect(done, [f"mpi_over: rank {r} of 2 sums" for r in range(2)])


class OpenMpiOnNodes(LauncherTest):
    command = OpenMpi.command
    ignores_leaks = True

    def launch(self, size, *words):
        as_root = ["--allow-run-as-root"] if os.getuid() == 0 else []
        return [self.command, *as_root, "--oversubscribe", "--mca", "plm_rsh_agent", TESTBED, "--host", "node0:2,node1:2",
                "-n", str(size), *words]

    def test_place_and_store(self):
        done = self.run_command(self.launch(4, program, "place"))
        if done.stdout.startswith("openmpi"):
            self.skipTest("built without PMIx, or libpmix is not there")
        self.expect_places(done, "pmix", [0, 0, 1, 1], node_numbers=[1, 2])  # node 0 is the one of mpirun

    def test_worlds(self):
        self.expect_join(self.run_command(self.launch(4, program, "join")), 4)


SLURM_CONF = """
ClusterName=tutti
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SchedulerType=sched/builtin
SelectType=select/linear
SlurmdParameters=config_overrides
MailProg=/bin/true
ReturnToService=2
PartitionName=all Nodes=node[0-1] Default=YES State=UP OverSubscribe=FORCE:4
NodeName=node0 NodeHostname={hosts[0]} NodeAddr={addresses[0]} Port={ports[0]} CPUs=4
NodeName=node1 NodeHostname={hosts[1]} NodeAddr={addresses[1]} Port={ports[1]} CPUs=4
"""


def free_ports(count):
    """Ports that nobody listened at a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def die_with_parent():
    PR_SET_PDEATHSIG = 1
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class SlurmTest(LauncherTest):
    """A Slurm of its own: a controller and two nodes. Without a bed these are on this machine and know each other by port."""

    command = find_command(["srun"])
    daemons = []
    is_pmix = False

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="tutti-slurm-")
        for name in ("state", "tmp-node0", "tmp-node1"):
            os.mkdir(os.path.join(cls.folder, name))
        port, *ports = free_ports(3)
        values = {"host": socket.gethostname(), "address": "127.0.0.1", "port": port, "ports": ports,
                  "hosts": [socket.gethostname()] * 2, "addresses": ["127.0.0.1"] * 2}
        if bed is not None:
            values.update(address=f"10.77.0.{testbed.HUB_HOST}", hosts=["node0", "node1"],
                          addresses=[bed.address(node) for node in range(2)])
        cls.configuration = os.path.join(cls.folder, "slurm.conf")
        with open(cls.configuration, "w", encoding="ascii") as file:
            file.write(SLURM_CONF.format(user=getpass.getuser(), folder=cls.folder, **values))
        cls.start(["slurmctld", "-D", "-i"])
        for node in range(2):
            cls.start(["slurmd", "-D", "-N", f"node{node}"], bed.prefix(node) if bed is not None else [])
        for _ in range(SECONDS * 5):
            if cls.ask("sinfo", "-h", "-o", "%t").split() == ["idle"]:
                break
            time.sleep(0.2)
        else:
            raise RuntimeError("Slurm does not start:\n" + cls.logs())
        cls.plugins = cls.ask("srun", "--mpi=list")

    @classmethod
    def start(cls, words, prefix=()):
        words = [*prefix, command_path(words[0]), *words[1:]]
        cls.daemons.append(subprocess.Popen(words, env={**clean_environment(), "SLURM_CONF": cls.configuration},
                                            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                            stderr=subprocess.DEVNULL, preexec_fn=die_with_parent))

    @classmethod
    def tearDownClass(cls):
        cls.ask("scancel", "--signal=KILL", "--user", getpass.getuser())
        for daemon in reversed(cls.daemons):
            daemon.terminate()
        for daemon in cls.daemons:
            try:
                daemon.wait(SECONDS)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()
        shutil.rmtree(cls.folder, ignore_errors=True)

    @classmethod
    def ask(cls, *words):
        done = subprocess.run(words, env={**clean_environment(), "SLURM_CONF": cls.configuration}, text=True,
                              capture_output=True, timeout=SECONDS, check=False)
        return done.stdout + done.stderr

    @classmethod
    def logs(cls):
        text = ""
        for name in sorted(os.listdir(cls.folder)):
            if name.endswith(".log"):
                with open(os.path.join(cls.folder, name), encoding="utf-8", errors="replace") as file:
                    text += name + ":\n" + file.read()[-3000:]
        return text

    @property
    def ignores_leaks(self):
        return self.is_pmix

    def srun(self, kind, nodes, size, *words, **environment):
        self.is_pmix = kind == "pmix"
        done = self.run_command([self.command, "--mpi=" + kind, f"-N{nodes}", f"-n{size}", *words],
                                **environment)
        if done.returncode != 0:
            self.output += self.logs()
        return done

    def run_command(self, command, **environment):
        return super().run_command(command, **{"SLURM_CONF": self.configuration, **environment})


class Slurm(SlurmTest):
    def test_pmi2(self):
        self.expect_places(self.srun("pmi2", 2, 3, program, "place"), "pmi2", [0, 0, 1])
        done = self.srun("pmi2", 2, 4, program, "join")
        self.expect_join(done, 4)
        done = self.srun("pmi2", 1, 2, program, "fork")
        self.expect(done, [f"rank {r}: child 7, store ok" for r in range(2)])

    def test_pmi2_without_one_rank(self):
        done = self.srun("pmi2", 2, 3, program, "absent")
        for rank in (1, 2):
            self.assertRegex(done.stdout, rf"rank {rank}: timeout: PMI-2 \(.*\): rank {rank} is in the fence",
                             self.output)

    def test_pmi2_with_mpi(self):
        """MPICH has the one introduction that Slurm takes; Slurm's variables tell tutti the rest."""
        self.expect_mixed(lambda size, *words: [self.command, "--mpi=pmi2", "-N1", f"-n{size}", *words], 3)

    def test_pmix(self):
        if "pmix" not in self.plugins:
            self.skipTest("this Slurm has no PMIx")
        done = self.srun("pmix", 2, 3, program, "place")
        if "slurm:" in done.stdout:
            self.skipTest("built without PMIx, or libpmix is not there")
        self.expect_places(done, "pmix", [0, 0, 1])
        done = self.srun("pmix", 1, 3, program, "join")
        self.expect_join(done, 3)

    def test_variables_alone(self):
        done = self.srun("none", 2, 3, program, "place")
        self.expect(done, [f"slurm: rank {r} of 3, local {r % 2} of {2 - r // 2}, node {r // 2}" +
                           ", unsupported: no store" * 3 for r in range(3)])
        done = self.srun("none", 1, 3, program, "join")
        self.expect_join(done, 3)

    def test_a_batch_script_is_no_rank(self):
        script = os.path.join(self.folder, "script")
        output = os.path.join(self.folder, "output")
        with open(script, "w", encoding="ascii") as file:
            file.write(f"#!/bin/sh\n{program} join\nsrun --mpi=pmi2 {program} join\n")
        done = self.run_command(["sbatch", "--wait", "-N1", "-n2", "-o", output, script])
        self.assertEqual(done.returncode, 0, self.output + self.logs())
        with open(output, encoding="utf-8") as file:
            lines = sorted(file.read().splitlines())
        self.assertEqual(lines, ["join: rank 0 of 1 sums", "join: rank 0 of 2 sums", "join: rank 1 of 2 sums"])


class SlurmOnNodes(SlurmTest):
    def test_place_and_store(self):
        self.expect_places(self.srun("pmi2", 2, 3, program, "place"), "pmi2", [0, 0, 1])
        if "pmix" in self.plugins:
            done = self.srun("pmix", 2, 3, program, "place")
            if "slurm:" not in done.stdout:  # as it is without libpmix
                self.expect_places(done, "pmix", [0, 0, 1])

    def test_worlds(self):
        self.expect_join(self.srun("pmi2", 2, 4, program, "join"), 4)

    def test_variables_alone(self):
        self.expect_join(self.srun("none", 2, 4, program, "join", TUTTI_SECRET="of this job"), 4)


class TuttiRun(LauncherTest):
    command = None  # given on the command line

    def run_command(self, command, **environment):
        """Without the rank that `tutti run` puts in front of each line."""
        done = super().run_command(command, **environment)
        done.stdout = re.sub(r"^\[\d+\] ", "", done.stdout, flags=re.MULTILINE)
        return done

    def test_place_and_worlds(self):
        done = self.run_command([self.command, "-n", "3", program, "place"])
        self.expect(done, [f"tutti run: rank {r} of 3, local {r} of 3, node -1" + ", unsupported: no store" * 3 for r in range(3)])
        self.expect_join(self.run_command([self.command, "-n", "3", program, "join"]), 3)


class Torchrun(LauncherTest):
    command = find_command(["torchrun"])

    def run_command(self, command, **environment):
        """Without what torchrun puts in front of each line."""
        done = super().run_command(command, **environment)
        done.stdout = re.sub(r"^\[default\d+\]:", "", done.stdout, flags=re.MULTILINE)
        return done

    def test_place_and_worlds(self):
        # 1.13 knows these spellings only, and on Python 3.11 has to be told what to do with the output.
        launch = [self.command, "--standalone", "--nproc_per_node=3", "-r", "1", "-t", "1", "--monitor_interval=0.1", "--no_python", program]
        done = self.run_command([*launch, "place"])
        self.expect(done, [f"torchrun: rank {r} of 3, local {r} of 3, node -1" + ", unsupported: no store" * 3 for r in range(3)])
        self.expect_join(self.run_command([*launch, "join"]), 3)


class RendezvousHandler(http.server.BaseHTTPRequestHandler):
    """As Horovod's: PUT and GET of /scope/key."""

    def scope_and_key(self):
        words = self.path.split("/")
        return tuple(words[1:]) if len(words) == 3 else None

    def do_PUT(self):
        value = self.rfile.read(int(self.headers["Content-Length"]))
        place = self.scope_and_key()
        if place:
            self.server.values[place] = value
        self.send_response(200 if place else 400)
        self.end_headers()

    def do_GET(self):
        value = self.server.values.get(self.scope_and_key())
        self.send_response(404 if value is None else 200)
        if value is not None:
            self.send_header("Content-Length", str(len(value)))
        self.end_headers()
        self.wfile.write(value or b"")

    def log_message(self, *_words):
        pass


class Horovod(LauncherTest):
    """Horovod's variables and a server like its rendezvous server; horovodrun itself is not needed."""

    command = "horovodrun"

    def setUp(self):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), RendezvousHandler)
        self.server.values = {}
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()

    def run_ranks(self, size, *words):
        """Their lines in one result, as a launcher would give them."""
        ranks = []
        for rank in range(size):
            place = {"RANK": rank, "SIZE": size, "LOCAL_RANK": rank, "LOCAL_SIZE": size, "CROSS_RANK": 0, "CROSS_SIZE": 1,
                     "GLOO_RENDEZVOUS_ADDR": "127.0.0.1", "GLOO_RENDEZVOUS_PORT": self.server.server_port}
            environment = {**clean_environment(), **{"HOROVOD_" + name: str(value) for name, value in place.items()}}
            ranks.append(subprocess.Popen(words, env=environment, text=True, stdout=subprocess.PIPE,
                                          stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL))
        self.output = "".join(rank.communicate(timeout=SECONDS)[0] for rank in ranks)
        return subprocess.CompletedProcess(words, max(rank.returncode for rank in ranks), self.output, "")

    def test_place_and_store(self):
        self.expect_places(self.run_ranks(3, program, "place"), "horovod", [0, 0, 0], node_numbers=[-1])

    def test_worlds(self):
        self.expect_join(self.run_ranks(4, program, "join"), 4)
        self.assertTrue(all(scope == "tutti" for scope, _ in self.server.values), self.server.values)

    def test_a_rank_that_does_not_come(self):
        done = self.run_ranks(2, program, "absent")
        self.assertRegex(done.stdout, r"rank 1: timeout: HTTP \(http://127.0.0.1:\d+/tutti\): rank 0 has not put missing in time",
                         self.output)


LAUNCHERS = {"tutti": (TuttiRun, None), "torchrun": (Torchrun, None), "horovod": (Horovod, None),
             "hydra": (Hydra, HydraOnNodes), "openmpi": (OpenMpi, OpenMpiOnNodes), "slurm": (Slurm, SlurmOnNodes)}


def run_cases(case):
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(case)
    return 0 if unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful() else 1


def main():
    global program, mpi_program
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", action="store_true")
    parser.add_argument("--run", help="the program that is `tutti run`")
    parser.add_argument("launcher", choices=LAUNCHERS)
    parser.add_argument("program")
    parser.add_argument("mpi_program", nargs="?")
    options = parser.parse_args()
    program, mpi_program = options.program, options.mpi_program
    TuttiRun.command = options.run
    case = LAUNCHERS[options.launcher][options.nodes]
    if case.command is None:
        skip(f"the launcher of {options.launcher} is not installed")
    if options.launcher == "slurm" and not all(map(command_path, ("slurmctld", "slurmd", "sbatch"))):
        skip("Slurm's daemons are not installed (Debian: slurmctld, slurmd, slurm-client)")
    if not options.nodes:
        sys.exit(run_cases(case))
    reason = testbed.why_unavailable()
    if reason:
        skip(reason)

    def body(made):
        global bed
        bed = made
        return run_cases(case)

    sys.exit(testbed.run_in_bed(body, nodes=2))


if __name__ == "__main__":
    main()
