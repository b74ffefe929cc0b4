#!/usr/bin/env python3
"""`tutti horovodrun` with real processes: the variables of ranks, the alias of Horovod, output, and its table. Stand-ins take the place
of the Python package. Knows the tool's command line only.

usage: horovodrun_test.py TOOL"""

import fcntl
import os
import pathlib
import subprocess
import sys
import tempfile

TOOL = sys.argv[1]
PLACE = ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE", "HOSTNAME")
# Two hosts, which are this machine, where ssh would be called.
TWO_HOSTS = ["-H", "one:2,two:1", "--agent", "env -i sh -c 'exec sh -c \"$1\"'"]


def call(words, settings=None, tool=TOOL):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("HOROVOD_", "TUTTI_", "PYTHONPATH"))}
    environment.update(settings or {})
    return subprocess.run([tool] + words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, check=False, env=environment)


def expect(condition, result, what):
    if not condition:
        sys.exit(f"{what}\nstatus {result.returncode}\nstdout:\n{result.stdout}\nstderr:\n{result.stderr}")


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def make_package(folder, body=""):
    """A package `tutti` with an alias; returns the setting by which interpreters find it."""
    write(folder / "tutti/__init__.py", body)
    write(folder / "tutti/alias/horovod/__init__.py", "origin = 'alias'\n")
    write(folder / "tutti/horovod/__init__.py",
          "def nccl_built(): return 21000\ndef mpi_built(): return False\ndef gloo_built(): raise RuntimeError\n")
    write(folder / "tutti/horovod/torch.py", "")
    return {"PYTHONPATH": str(folder)}


def show_place():
    return "echo " + " ".join(f"${{HOROVOD_{name}-none}}" for name in PLACE)


def test_place(folder):
    package = make_package(folder)
    result = call(["horovodrun", "-np", "2", "-H", "localhost:4", "--no-prefix", "sh", "-c", show_place()], package)
    expect(sorted(result.stdout.splitlines()) == ["0 2 0 2 0 1 localhost", "1 2 1 2 0 1 localhost"], result, "place on one machine")
    result = call(["horovodrun", "-np", "3"] + TWO_HOSTS + ["--no-prefix", "sh", "-c", show_place()], package)
    expect(sorted(result.stdout.splitlines()) == ["0 3 0 2 0 2 one", "1 3 1 2 0 1 one", "2 3 0 1 1 2 two"], result, "place on two hosts")
    result = call(["run", "-n", "1", "--no-prefix", "sh", "-c", show_place()], package)
    expect(result.stdout == "none " * 6 + "none\n", result, "tutti run sets no variable of Horovod's")
    result = call(["run", "--horovod", "-n", "1", "--no-prefix", "sh", "-c", show_place()], package)
    expect(result.stdout == "0 1 0 1 0 1 localhost\n", result, "tutti run --horovod")


def test_flags(folder):
    package = make_package(folder)
    words = ["horovodrun", "-np", "3"] + TWO_HOSTS + ["--cycle-time-ms", "2.5", "--fusion-threshold-mb", "1", "--gloo", "--autotune", "--torus-allreduce", "--no-prefix"]
    result = call(words + ["sh", "-c", "echo $HOROVOD_CYCLE_TIME $HOROVOD_FUSION_THRESHOLD ${HOROVOD_AUTOTUNE-none}"], package)
    expect(result.stdout == "2.5 1048576 1\n" * 3, result, "flags reach all ranks")
    for flag in ("--gloo", "--torus-allreduce"):
        expect(result.stderr.count(f"tutti horovodrun: {flag}: no effect: ") == 1, result, f"{flag} is answered once")
    result = call(["horovodrun", "-np", "2", "--no-such-flag", "true"])
    expect(result.returncode == 2 and "unknown option '--no-such-flag'" in result.stderr, result, "an unknown flag")
    result = call(["horovodrun", "-np", "2", "--min-np", "3", "true"])
    expect(result.returncode == 2 and "--min-np 3: the job starts with fewer ranks" in result.stderr, result, "more ranks than there are")
    result = call(["horovodrun", "-np", "3", "-H", "one:2,two:1", "--through", "mpiexec", "--min-np", "2", "true"])
    expect(result.returncode == 2 and "--min-np 2: mpiexec ends the job when a rank fails" in result.stderr, result, "ranks of MPI cannot be lost")


def test_lost_ranks(folder):
    lose_ranks(folder, [], "ranks (2 running)")


def test_lost_ranks_on_hosts(folder):
    lose_ranks(folder, TWO_HOSTS, "parts (2 running)")
    # The connection to host two ends, which is the parent of the part there.
    hosts = [*TWO_HOSTS[:-1], TWO_HOSTS[-1].replace("exec ", "").replace('$1"', '$1"; exit')]
    script = f'if [ $RANK = 2 ]; then read -r _ _ _ parent _ < /proc/$PPID/stat; kill -9 $parent; exec sleep 1000; fi; while [ ! -e "{folder}/end" ]; do sleep 0.02; done; echo rank $RANK'
    words = [TOOL, "run", "-n", "3", *hosts, "--min-np", "1", "--no-prefix", "--output-filename", str(folder / "out"), "sh", "-c", script]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        seen = [job.stderr.readline()]
        while seen[-1] and "going on" not in seen[-1]:
            seen.append(job.stderr.readline())
        (folder / "end").touch()
        out, err = job.communicate(timeout=60)
    result = subprocess.CompletedProcess(words, job.returncode, out, "".join(seen) + err)
    expect("the part on host two" in seen[-2] and "going on with 2 of 3 ranks" in seen[-1], result, "a host is lost")
    expect(job.returncode == 0 and sorted(out.splitlines()) == ["rank 0", "rank 1"], result, "the others end well")
    files = sorted(path.read_text() for path in folder.glob("out/rank.*/stdout"))
    expect(files == ["", "rank 0\n", "rank 1\n"], result, f"files of ranks: {files}")


def lose_ranks(folder, hosts, running):
    package = make_package(folder)
    # The others end when rank 1 has, or earlier if the job is ended.
    script = f'if [ $RANK = 1 ]; then kill -9 $$; fi; while [ ! -e "{folder}/end" ]; do sleep 0.02; done; echo rank $RANK'
    words = ["horovodrun", "-np", "3", *hosts, "--no-prefix", "--min-np"]
    with subprocess.Popen([TOOL] + words + ["2", "sh", "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env={**os.environ, **package}) as job:
        lines = [job.stderr.readline() for _ in range(3 if hosts else 2)][-2:]  # at first, what other hosts get
        (folder / "end").touch()
        out, err = job.communicate(timeout=60)
    result = subprocess.CompletedProcess([], job.returncode, out, "".join(lines) + err)
    expect("killed by signal 9" in lines[0] and lines[1] == "tutti run: going on with 2 of 3 ranks\n", result, "a rank is lost")
    expect(sorted(out.splitlines()) == ["rank 0", "rank 2"] and job.returncode == 0, result, "the others end well")
    (folder / "end").unlink()
    result = call(words + ["3", "sh", "-c", script], package)
    expect(result.returncode == 137 and f"ending the other {running}" in result.stderr and result.stdout == "", result, "too few are left")
    result = call(words + ["1", "sh", "-c", "exit $((RANK + 4))"], package)
    expect(result.returncode in (4, 5, 6) and "ended with exit status" in result.stderr, result, "all fail")


def test_left_folders(folder):
    """A launcher that was killed leaves the folder of its elastic job; the next one removes it."""
    package = make_package(folder)
    for name in ("other", "tutti-elastic-held", "tutti-elastic-left", "tutti-elastic-young"):
        (folder / name).mkdir()
        if not name.endswith("young"):
            os.utime(folder / name, (0, 0))
    held = os.open(folder / "tutti-elastic-held", os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    result = call(["horovodrun", "-np", "2", "--min-np", "1", "true"], {**package, "TMPDIR": str(folder)})
    os.close(held)
    there = sorted(path.name for path in folder.iterdir() if path.name != "tutti")
    expect(result.returncode == 0 and there == ["other", "tutti-elastic-held", "tutti-elastic-young"], result, f"what is left: {there}")


def test_job(folder):
    package = make_package(folder)
    settings = dict(package, HOROVOD_TORUS_ALLREDUCE="1", HOROVOD_STALL_CHECK_TIME_SECONDS="soon")
    result = call(["horovodrun", "-np", "2", "--log-level", "WARNING", "--tcp", TOOL, "bench", "allreduce", "-b", "8", "-e", "8", "--iters", "5"],
                  settings)
    expect(result.returncode == 0 and "over 2 ranks" in result.stdout, result, "a job of two ranks")
    expect(result.stderr.count("HOROVOD_TORUS_ALLREDUCE=1 has no effect: ") == 1, result, "rank 0 answers a variable")
    expect(result.stderr.count("ignored: HOROVOD_STALL_CHECK_TIME_SECONDS='soon': expected whole seconds") == 1, result, "a malformed variable")
    result = call(["horovodrun", "-np", "2", "--log-level", "ERROR", TOOL, "bench", "allreduce", "-b", "8", "-e", "8", "--iters", "5"], settings)
    expect(result.returncode == 0 and "HOROVOD_TORUS" not in result.stderr, result, "the log level reaches the ranks")


def test_alias(folder):
    package = make_package(folder)
    # One write per line: output is unbuffered, and the ranks share it.
    script = "import horovod, os, sys; sys.stdout.write(f\"{horovod.origin} {os.environ['PYTHONPATH']}\\n\")"
    path = f"{folder}/tutti/alias:{folder}"
    for words in (["horovodrun", "-np", "2"], ["horovodrun", "-np", "3"] + TWO_HOSTS, ["run", "--horovod", "-n", "2"]):
        result = call(words + ["--no-prefix", sys.executable, "-c", script], package)
        ranks = 3 if "3" in words else 2
        expect(result.stdout == f"alias {path}\n" * ranks and result.returncode == 0, result, f"alias with {words}")
    result = call(["horovodrun", "-np", "1", "--no-prefix", "-x", "PYTHONPATH=/else", sys.executable, "-c", "import os; print(os.environ['PYTHONPATH'])"],
                  package)
    expect(result.stdout == f"{folder}/tutti/alias:/else\n", result, "-x PYTHONPATH comes behind the alias")
    result = call(["run", "-n", "1", sys.executable, "-c", "import horovod"], package)
    expect(result.returncode != 0 and "No module named 'horovod'" in result.stderr, result, "no alias without --horovod")


def test_no_package(folder):
    broken = make_package(folder, "raise ImportError('libtutti.so is\\n gone')\n")
    reason = "cannot import tutti: ImportError: libtutti.so is gone\n"
    result = call(["horovodrun", "-np", "2", sys.executable, "-c", "print('ran')"], broken)
    expect(result.returncode == 1 and reason in result.stderr and result.stdout == "", result, "a script is not started without the package")
    result = call(["horovodrun", "-np", "1", "--no-prefix", "echo", "ran"], broken)
    expect(result.returncode == 0 and "python3 " + reason in result.stderr and result.stdout == "ran\n", result, "another program is")
    expect(result.stderr.count("\n") == 1, result, "in one line")
    (folder / "tutti/__init__.py").write_text("")
    (folder / "tutti/alias/horovod/__init__.py").unlink()
    result = call(["horovodrun", "-np", "1", sys.executable, "-c", ""], broken)
    expect(result.returncode == 1 and "install a newer one" in result.stderr, result, "a package without the alias")


def test_output(folder):
    package = make_package(folder)
    out = folder / "a" / "out"
    words = ["--output-filename", str(out), "sh", "-c", "echo out $RANK; printf err$RANK >&2"]
    result = call(["horovodrun", "-np", "11"] + words, package)
    expect(result.returncode == 0 and "[10] out 10\n" in result.stdout and "[3] err3\n" in result.stderr, result, "output is shown, too")
    for rank in range(11):
        found = [(out / f"rank.{rank:02}" / name).read_text() for name in ("stdout", "stderr")]
        expect(found == [f"out {rank}\n", f"err{rank}"], result, f"files of rank {rank}: {found}")
    result = call(["horovodrun", "-np", "3"] + TWO_HOSTS + ["--no-prefix"] + words, package)
    expect((out / "rank.2" / "stdout").read_text() == "out 2\n" and "out 2\n" in result.stdout, result, "files of another host's rank")
    result = call(["horovodrun", "-np", "1", "--output-filename", "/proc/none", "true"], package)
    expect(result.returncode == 1 and "--output-filename: /proc/none/rank.0: " in result.stderr, result, "a folder that cannot be made")
    result = call(["horovodrun", "-np", "1", "-prefix-timestamp", "echo", "x"], package)
    words = result.stdout.split()
    expect(words[2:] == ["[0]", "x"] and len(words[0]) == 10 and words[1].count(":") == 2, result, "the time before a line")


def test_tables(folder):
    result = call(["horovodrun", "--check-build"], make_package(folder))
    for line in ("    [X] PyTorch", "    [ ] TensorFlow", "    [X] NCCL", "    [ ] MPI", "    [ ] Gloo", "    [X] tutti", "Available Controllers:"):
        expect(line in result.stdout.splitlines(), result, f"--check-build has no line {line!r}")
    result = call(["horovodrun", "-cb"], {"PYTHONPATH": ""})
    expect(result.returncode == 0 and "[X]" not in result.stdout and "cannot import tutti" in result.stderr, result, "nothing without a package")
    link = folder / "horovodrun"
    link.symlink_to(os.path.abspath(TOOL))
    result = call(["-np", "1", "--no-prefix", "sh", "-c", "echo $HOROVOD_SIZE"], make_package(folder), tool=str(link))
    expect(result.stdout == "1\n", result, "called by the name horovodrun")
    result = call(["horovodrun", "--version"])
    expect(call(["--version"]).stdout.startswith("tutti " + result.stdout), result, "--version")


def main():
    for name, test in sorted(globals().items()):
        if not name.startswith("test_"):
            continue
        with tempfile.TemporaryDirectory() as folder:
            test(pathlib.Path(folder).resolve())
        print(f"{name}: passed")


if __name__ == "__main__":
    main()
