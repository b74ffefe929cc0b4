#!/usr/bin/env python3
"""Tests of the tool's command line, through the built program.

Knows what the help promises, nothing of how it is done. Usage: tools_test.py PART TUTTI; 77 is "skipped".
"""
import importlib
import json
import os
import pty
import re
import resource
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml_tree

COLLECTIVES = "allreduce broadcast reduce allgather reduce_scatter alltoall gather scatter barrier scan exscan".split()
FIELDS = ("collective bytes count dtype op in_place ranks nodes algorithm transport backend iterations p50_us p95_us min_us "
          "mean_us algbw_GBs busbw_GBs wrong").split()
QUICK = ["--budget", "0.02", "--iters", "3", "--warmup", "2"]
SECONDS = 100
SKIPPED = 77

tutti = ""


def clean_environment(**extra):
    """Without what a launcher or a user may have set: a test must not depend on where it runs."""
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("TUTTI_", "I_MPI_")) and k not in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")}
    return {**kept, "TUTTI_TUNING_FILE": "off", **extra}


def run(*words, confine=None, **environment):
    """`confine` is called in the child before the tool starts."""
    return subprocess.run([tutti, *map(str, words)], capture_output=True, text=True, check=False, timeout=SECONDS,
                          stdin=subprocess.DEVNULL, env=clean_environment(**environment), preexec_fn=confine)


def expect(condition, what, result=None):
    if condition:
        return
    print("FAILED: " + what)
    if result is not None:
        print(f"status {result.returncode}\n--- stdout\n{result.stdout}--- stderr\n{result.stderr}")
    sys.exit(1)


def expect_usage_error(words, *said, **environment):
    """Exit status 2, nothing on standard output, and a message that holds all the words."""
    result = run(*words, **environment)
    command = " ".join(map(str, words))
    expect(result.returncode == 2, f"'{command}' must be a usage error", result)
    expect(not result.stdout, f"'{command}' must print nothing on standard output", result)
    for text in said:
        expect(text in result.stderr, f"'{command}' must say: {text}", result)


def rows_of(path):
    with open(path, encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def check_completion():
    for words, offered, others in ((["tu"], ["tune"], ["bench"]), (["bench", "all"], ["allreduce", "alltoall"], ["barrier"]),
                                   (["bench", "allreduce", "--che"], ["--check"], ["--help"]), (["run", "--bi"], ["--bind"], ["-n"])):
        script = (f'eval "$({tutti} completion)"; COMP_WORDS=({tutti} {" ".join(words)}); COMP_CWORD={len(words)}; _tutti; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False, timeout=SECONDS, env=clean_environment())
        found = done.stdout.split()
        expect(done.returncode == 0 and set(offered) <= set(found) and not set(others) & set(found), f"completion of {words}: {found}", done)


def test_usage(_folder):
    with open("/dev/full", "wb") as full:
        for words in (["info"], ["verify", "allreduce", "ring", "-n", 4], ["bench", "allreduce", "-n", 2, "-b", 4, "-e", 4, *QUICK],
                      ["run", "-n", 2, "echo", "result"]):
            result = subprocess.run([tutti, *map(str, words)], stdout=full, stderr=subprocess.PIPE, text=True, check=False, timeout=SECONDS,
                                    stdin=subprocess.DEVNULL, env=clean_environment())
            result.stdout = ""
            expect(result.returncode == 1 and "cannot write" in result.stderr,
                   f"{words[0]} onto a full disk", result)
    expect_usage_error([])
    expect_usage_error(["nonsense"], "no command 'nonsense'")
    for command in ("bench", "info", "verify", "schedule", "explain", "doctor", "top", "trace", "tune", "run", "completion"):
        result = run(command, "--help")
        expect(result.returncode == 0 and len(result.stdout) > 100, f"{command} --help", result)
        expect(re.match(r"[A-Zu]\w+", result.stdout) is not None, f"{command} --help starts with what it does", result)
        words = [command, "allreduce"] if command == "bench" else [command]
        expect_usage_error([*words, "--no-such-option"], "--no-such-option")
    version = run("--version").stdout
    expect(re.fullmatch(r"tutti \d+\.\d+\.\d+\nbuild: \d.*, .+\ntransports: .*inproc.*\nfeatures: (no-)?cuda (no-)?nccl (no-)?pmix\n", version),
           f"--version: {version}")
    check_completion()
    expect_usage_error(["bench"], "collective")
    expect_usage_error(["bench", "allredcue"], "allreduce", "exscan", "roofline")
    expect_usage_error(["bench", "send_recv"], "allreduce")
    for words, said in ((["-b", "4q"], "-b"), (["-b", "8", "-e", "4"], "-b"), (["-f", "1"], "-f"), (["--dtype", "f33"], "--dtype"),
                        (["--op", "plus"], "--op"), (["--op", "band"], "--op"), (["--op", "user"], "--op"), (["-n", "0"], "-n"),
                        (["--root", "2", "-n", "2"], "--root"), (["--pages", "2m"], "--pages"), (["--alloc", "heap"], "--alloc"),
                        (["--bind", "socket"], "--bind"), (["--b2b", "--hot"], "--b2b"), (["--plot", "a.pdf"], ".svg"), (["--html", "a.txt"], ".html"),
                        (["--iters", "-1"], "--iters"), (["--budget", "0"], "--budget"), (["--against", "nccl"], "openmpi"),
                        (["--rounds", "0"], "--rounds"), (["--beside", "-1"], "--beside"), (["--against", "mpich", "--workload", "vgg16"], "--workload")):
        expect_usage_error(["bench", "allreduce", *words], said)
    expect_usage_error(["bench", "gather", "--against", "mpich"], "gather is not compared")
    for words, said in ((["--nodes", "2"], "--against"), (["--rate", "1gbit", "--against", "gloo"], "--nodes"),
                        (["--nodes", "2", "-n", "2", "--against", "gloo"], "-n"), (["--nodes", "2x", "--against", "gloo"], "'2x' is not"),
                        (["--nodes", "0", "--against", "gloo"], "'0' is not")):
        expect_usage_error(["bench", "allreduce", *words], said)
    # A wrong word: the argument, what was expected, what to type.
    for words, *said in ((["ben"], "did you mean bench?"), (["bench"], "tutti bench allreduce"), (["bench", "allreduce", "extra"], "'extra' is one"),
                         (["bench", "allreduce", "--budgte", "1"], "did you mean --budget?"), (["bench", "allreduce", "-n"], "--ranks: a value must follow"),
                         (["bench", "allreduce", "-n", "x"], "--ranks: expected a whole number", "'x'"),
                         (["bench", "allreduce", "--budget", "x"], "--budget: expected a number", "'x'"),
                         (["bench", "allreduce", "-f", "x"], "-f: 'x' is not a factor such as 4"),
                         (["bench", "allreduce", "--b2b", "--hot"], "--b2b excludes --hot; give one"),
                         (["bench", "allreduce", "-n", "2", "--json", "/nowhere/a"], "--json /nowhere/a: cannot write", "a folder of yours"),
                         (["bench", "allreduce", "--nodes", "2", "--against", "sockets", "--rate", "5x"], "--rate: expected", "1gbit", "'5x'"),
                         (["run"], "such as python3 train.py"), (["run", "-n", "x", "true"], "-n: expected a number of ranks from 1", "'x'"),
                         (["run", "--min-np", "x", "true"], "--min-np: expected a number of ranks", "'x'"), (["run", "--agent", "", "true"], "--agent: expected"),
                         (["run", "--hostfile", "/nowhere", "true"], "--hostfile: cannot read '/nowhere': No such file"),
                         (["info", "--plan", "2", "--bind-order", "z"], "--bind-order: expected one of compact, scatter, got 'z'"),
                         (["info", "--topology", "--plot", "/nowhere/a.svg"], "--plot /nowhere/a.svg: cannot write"),
                         (["explain", "allreduce", "x"], "expected bytes such as 4096"), (["schedule", "allreduce"], "name an algorithm", "ring"),
                         (["trace"], "tutti trace trace.*.json"), (["trace", "/nowhere"], "'/nowhere' cannot be read"), (["doctor", "/"], "TUTTI_RECORDER"),
                         (["top", "--interval", "0"], "--interval: expected seconds"), (["tune"], "tutti run -n 4 tutti tune"),
                         (["horovodrun", "true"], "such as -np 4"), (["completion", "zsh"], "'zsh' is one argument too many")):
        expect_usage_error(words, *said)
    # An unknown algorithm fails and lists the right ones, however it is asked for.
    expect_usage_error(["bench", "allreduce", "--algorithm", "rong"], "--algorithm", "ring", "two_shot")
    expect_usage_error(["bench", "allreduce"], "TUTTI_ADJUST_ALLREDUCE", "column 1", "ring", TUTTI_ADJUST_ALLREDUCE="rong")
    expect_usage_error(["bench", "barrier", "--algorithm", "ring"], "dissemination")
    expect_usage_error(["bench", "allreduce"], "TUTTI_TIMEOUT", TUTTI_TIMEOUT="soon")
    expect_usage_error(["bench", "allreduce", "--threads"], "inside a job", RANK="0", WORLD_SIZE="2")
    expect_usage_error(["verify", "allreduce", "rong"], "ring")
    expect_usage_error(["verify", "--all", "-n", "4..2"], "4..2")


def run_at_terminal(*words, **environment):
    """The output of a run whose streams are a terminal."""
    ours, theirs = pty.openpty()
    extra = {"TERM": "xterm", "LC_ALL": "C.UTF-8", "NO_COLOR": "", **environment}
    with subprocess.Popen([tutti, *map(str, words)], stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                          env=clean_environment(**extra)) as process:
        os.close(theirs)
        seen = b""
        try:
            while chunk := os.read(ours, 65536):
                seen += chunk
        except OSError:  # how Linux tells that the other side is closed
            pass
        os.close(ours)
        expect(process.wait(SECONDS) == 0, f"{words} at a terminal: {seen}")
    return seen.decode()


def check_terminal():
    """How far it is, and bars below the table; a pipe sees neither."""
    words = ["bench", "allreduce", "-n", 2, "-b", 4, "-e", "4k", "-f", 32, *QUICK]
    shown = run_at_terminal(*words)
    expect(re.search(r"\r\x1b\[K\[#{8}\.{16}\] 33 % 128 B \(2 of 3\); \d+ s left\r\x1b\[K", shown), f"a line of progress: {shown!r}")
    bars = re.findall(r"^ *(4 B|128 B|4 KiB) \x1b\[36m([█▏▎▍▌▋▊▉]+) *\x1b\[0m ([\d.]+)\r$", shown, re.M)
    expect([bar[0] for bar in bars] == ["4 B", "128 B", "4 KiB"] and "█" * 40 in shown, f"bars: {shown!r}")
    plain = run_at_terminal(*words, NO_COLOR="1", LC_ALL="C")
    expect("#" * 40 in plain and "█" not in plain and not re.search(r"\x1b\[[\d;]*m", plain), f"no colours, no blocks: {plain!r}")
    dumb = run_at_terminal(*words, TERM="dumb")
    piped = run(*words)
    for text in (dumb, piped.stdout + piped.stderr):
        expect("4 KiB" in text and "\x1b" not in text and "█" not in text and " left" not in text, f"nothing for terminals: {text!r}")


def test_bench(folder):
    check_terminal()
    path = os.path.join(folder, "rows.json")
    # TUTTI_PIN counts before the bench's own binding, and --bind before both. On one CPU, bound and unbound ranks look alike.
    cpus = len(os.sched_getaffinity(0))
    for words, pin, said in (([], "auto", "bound by TUTTI_PIN" if cpus > 1 else "not bound"), (["--bind", "none"], "auto", "not bound"),
                             ([], "off", "bound one per CPU" if cpus > 1 else "not bound")):
        result = run("bench", "allreduce", "-n", 2, "-b", 4, "-e", 4, *QUICK, *words, TUTTI_PIN=pin)
        expect(result.returncode == 0 and said in result.stdout, f"TUTTI_PIN={pin} {words}: {said}", result)
    # Busy neighbours are there while it measures, and gone with it.
    result = run("bench", "allreduce", "-n", 2, "-b", 4, "-e", 4, "--beside", 3, "--check", "--json", path, *QUICK)
    expect(result.returncode == 0 and "# beside 3 busy processes" in result.stdout, "--beside", result)
    expect(rows_of(path)[0]["beside"] == 3 and rows_of(path)[0]["wrong"] == 0, "--beside in JSON", result)
    result = run("bench", "allreduce", "-n", cpus + 1, "-b", 4, "-e", 4, "--b2b", "--bind", "core", *QUICK)
    expect(result.returncode == 0 and "bound evenly" in result.stdout, "more ranks than CPUs", result)
    for collective in COLLECTIVES:
        for ranks, extra in ((2, []), (3, ["--in-place", "--dtype", "int64"])):
            result = run("bench", collective, "-n", ranks, "-b", 4, "-e", "16k", "-f", 64, "--check", "--json", path, *QUICK, *extra)
            expect(result.returncode == 0, f"{collective} over {ranks} ranks", result)
            rows = rows_of(path)
            expect(len(rows) == (1 if collective == "barrier" else 3), f"{collective}: rows", result)
            for row in rows:
                expect(list(row) == FIELDS, f"fields are {list(row)}", result)
                expect(row["collective"] == collective and row["ranks"] == ranks and row["wrong"] == 0, f"row {row}", result)
                expect(row["iterations"] == 3 and row["nodes"] == 1 and row["transport"] == "shm", f"row {row}", result)
                expect(0 < row["min_us"] <= row["p50_us"] <= row["p95_us"] and row["algorithm"], f"row {row}", result)
                expect(row["in_place"] == bool(extra) and row["dtype"] == ("i64" if extra else "f32"), f"row {row}", result)
    small = ["-n", 2, "-b", "4k", "-e", "4k", "--json", path, *QUICK]
    for words in (["--b2b"], ["--hot"], ["--hot", "--in-place"], ["--alloc", "tutti"], ["--pages", "thp"], ["--bind", "none"],
                  ["--op", "premul_sum"], ["--op", "avg", "--dtype", "bf16"], ["--op", "max", "--dtype", "f8e4m3"]):
        result = run("bench", "allreduce", "--check", *small, *words)
        expect(result.returncode == 0 and rows_of(path)[0]["wrong"] == 0, f"allreduce {words}", result)
    for allocation, algorithm in (("malloc", "one_shot"), ("tutti", "two_shot")):
        result = run("bench", "allreduce", "--check", "-n", 2, "-b", "16k", "-e", "16k", "--json", path, *QUICK, "--alloc", allocation)
        expect(rows_of(path)[0]["algorithm"] == algorithm, f"the algorithm of buffers by {allocation}", result)
    result = run("bench", "allreduce", *small)
    expect(rows_of(path)[0]["wrong"] is None, "what was not checked has no number of wrong elements", result)
    result = run("bench", "allreduce", "--check", "--threads", *small)
    expect(result.returncode == 0 and rows_of(path)[0]["transport"] == "inproc", "ranks as threads", result)
    result = run("bench", "reduce_scatter", "--check", "--algorithm", "halving", *small)
    expect(result.returncode == 0 and rows_of(path)[0]["algorithm"] == "halving", "an algorithm by argument", result)
    # Inside a job each process is a rank, and rank 0 reports.
    result = run("run", "-n", 3, tutti, "bench", "allgather", "--check", "-b", 4, "-e", 4, "--json", path, *QUICK)
    expect(result.returncode == 0 and rows_of(path)[0]["ranks"] == 3, "inside tutti run", result)
    expect(all(line.startswith("[0] ") for line in result.stdout.splitlines()), "rank 0 alone reports", result)
    result = run("bench", "broadcast", "--check", "--root", 1, "-b", 4, "-e", 4, "-n", 2, *QUICK)
    expect(result.returncode == 0, "another root", result)
    result = run("bench", "allreduce", "--json", folder, "-b", 4, "-e", 4, "-n", 2, *QUICK)
    expect(result.returncode != 0 and "--json" in result.stderr, "a file that cannot be written", result)


def test_limits(folder):
    """Right results, and at most one line about it, where the system gives little."""
    def one_cpu():
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

    def little_locked_memory():
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (64 << 10, 64 << 10))

    def few_files():
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    def little_address_space():
        resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))

    # A sanitizer takes terabytes of address space for itself.
    is_sanitized = re.search(r"address|thread", run("info").stdout.splitlines()[0]) is not None
    path = os.path.join(folder, "limits.json")
    for name, confine, environment in (
            ("one CPU", one_cpu, {}), ("64 KiB of locked memory", little_locked_memory, {}), ("64 files", few_files, {}),
            ("2 GiB of address space", little_address_space, {}), ("no single copy", None, {"TUTTI_SINGLE_COPY": "off"}),
            ("a megabyte of shared memory", None, {"TUTTI_SHM_BYTES": "1m"}), ("messages", None, {"TUTTI_CONTROL_BLOCKS": "off"}),
            ("non-temporal stores", None, {"TUTTI_STAGING": "streamed"})):
        if is_sanitized and confine is little_address_space:
            continue
        result = run("bench", "allreduce", "-n", 3, "-b", "4", "-e", "1m", "-f", "64", "--iters", 3, "--check", "--json", path,
                     confine=confine, **environment)
        rows = rows_of(path) if result.returncode == 0 else []
        expect(len(rows) >= 3 and all(row["wrong"] == 0 for row in rows), f"allreduce with {name}", result)
        expect(sum("warn" in line for line in result.stderr.splitlines()) <= 3, f"one line a rank about {name}", result)

    def tiny_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (512, 512))

    result = run("bench", "allreduce", "-n", 2, "-b", 4, "-e", 4, *QUICK, confine=tiny_files)
    expect(result.returncode == 1 and "ulimit -f" in result.stderr, "files of 512 bytes", result)

    def no_room_for_stacks():
        resource.setrlimit(resource.RLIMIT_AS, (300 << 20, 300 << 20))

    if not is_sanitized:
        result = run("bench", "allreduce", "--threads", "-n", 64, "-b", 4, "-e", 4, *QUICK, confine=no_room_for_stacks)
        expect(result.returncode == 1 and "cannot start the thread" in result.stderr and "ulimit -v" in result.stderr,
               "64 threads without room for their stacks", result)


def test_hierarchy(folder):
    """Right results by domains: of a made-up machine, and of given sizes; on control blocks and by messages."""
    path = os.path.join(folder, "hierarchy.json")
    two_sockets = {"TUTTI_TOPOLOGY": "synthetic:pack:2 core:2 pu:1"}
    collectives = ("allreduce", "broadcast", "reduce", "allgather", "reduce_scatter", "alltoall", "gather", "scatter", "barrier")
    for ranks, environment in ((4, two_sockets), (5, two_sockets), (5, {"TUTTI_HIERARCHY": "1,3,1"}),
                               (12, {"TUTTI_HIERARCHY": "5,4,3"}), (12, {**two_sockets, "TUTTI_CONTROL_BLOCKS": "off"})):
        for collective in collectives if ranks < 12 else ("allreduce", "allgather", "alltoall"):
            result = run("bench", collective, "-n", ranks, "-b", 4, "-e", "256k", "-f", 256, "--check", "--algorithm",
                         "hierarchical", "--json", path, *QUICK, **environment)
            rows = rows_of(path) if result.returncode == 0 else []
            expect(rows and all(row["wrong"] == 0 and row["algorithm"] == "hierarchical" for row in rows),
                   f"{collective} over {ranks} ranks with {environment}", result)
    # With leaders, with other rows across, and on each other's buffers.
    for collective, parameters in (("allreduce", "leaders=1"), ("allreduce", "across=1"), ("allreduce", "across=2,leaders=2"),
                                   ("broadcast", "leaders=1,across=1"), ("reduce", "across=1"), ("allgather", "across=2"),
                                   ("alltoall", "leaders=1"), ("alltoall", "segments=3"), ("gather", "across=1"), ("scatter", "across=1")):
        for extra in ([], ["--alloc", "tutti", "--in-place"]):
            result = run("bench", collective, "-n", 6, "-b", 4, "-e", "1m", "-f", 512, "--check", "--algorithm",
                         f"hierarchical({parameters})", *extra, "--json", path, *QUICK, **two_sockets)
            expect(result.returncode == 0 and all(row["wrong"] == 0 for row in rows_of(path)), f"{collective}, {parameters} {extra}", result)
    words = ["run", "--no-prefix", "-n"]
    small = [tutti, "bench", "allreduce", "-b", 4, "-e", 4, "--check", "--json", path, *QUICK]
    # From 9 ranks on without being asked, where there are domains; short vectors only where ranks have a CPU each.
    large = [tutti, "bench", "allreduce", "-b", "128k", "-e", "128k", "--check", "--json", path, *QUICK]
    for environment, algorithm in ((two_sockets, "hierarchical"), ({"TUTTI_HIERARCHY": "off"}, "two_shot")):
        result = run(*words, 9, *large, **environment)
        expect(result.returncode == 0 and rows_of(path)[0]["algorithm"] == algorithm, f"9 ranks with {environment}", result)
    result = run(*words, 4, *small, TUTTI_LOG="info", **two_sockets)
    expect("group of 4 ranks in 2 domains: 0-1, 2-3" in result.stderr, "the log says which", result)
    result = run(*words, 4, *small, TUTTI_HIERARCHY="2,3")
    expect(result.returncode != 0 and "TUTTI_HIERARCHY='2,3': the sizes add up to 5; expected the number of ranks, 4" in result.stderr,
           "sizes that do not add up", result)
    result = run(*words, 2, *small, TUTTI_HIERARCHY="two")
    expect(result.returncode != 0 and "TUTTI_HIERARCHY='two': expected auto, off, or" in result.stderr, "no hierarchy at all", result)
    result = run(*words, 2, *small, "--algorithm", "hierarchical", TUTTI_HIERARCHY="off")
    expect(result.returncode != 0 and "needs a hierarchy" in result.stderr, "no domains", result)


def check_submitted(folder):
    path = os.path.join(folder, "rows.json")
    words = ["bench", "allreduce", "-n", 2, "-b", 4, "-e", "64k", "-f", "16k", "--submitted"]
    result = run(*words, "--rounds", 3, "--check", "--json", path, *QUICK)
    expect(result.returncode == 0 and result.stdout.count("added") == 2, "blocking and submitted in turn", result)
    rows = rows_of(path)
    expect([(r.get("calls"), r["count"], r["wrong"]) for r in rows]
           == [(None, 1, 0), ("submitted", 1, 0), (None, 16384, 0), ("submitted", 16384, 0)], f"its rows: {rows}", result)
    expect(all(r["least_added_us"] <= r["added_us"] <= r["most_added_us"] for r in rows[1::2]), f"what it adds: {rows}", result)
    expect_usage_error(["bench", "broadcast", "--submitted"], "allreduce only")
    expect_usage_error(["bench", "allreduce", "--submitted", "--against", "mpich"], "--submitted")


def check_then(folder):
    path = os.path.join(folder, "rows.json")
    words = ["bench", "gather", "-n", 3, "-b", 4, "-e", "4k", "-f", "1k", "--then", "broadcast"]
    result = run(*words, "--check", "--json", path, *QUICK)
    expect(result.returncode == 0 and "gather and broadcast over 3 ranks" in result.stdout, "a pair of calls", result)
    rows = rows_of(path)
    expect([(r["collective"], r["then"], r["bytes"], r["wrong"]) for r in rows]
           == [("gather", "broadcast", 12, 0), ("gather", "broadcast", 4104, 0)], f"its rows: {rows}", result)
    expect_usage_error(["bench", "gather", "--then", "barrier"], "--then", "barrier", "with buffers")
    expect_usage_error(["bench", "gather", "--then", "scater"], "--then", "scater")
    expect_usage_error(["bench", "gather", "--then", "scatter", "--algorithm", "linear"], "--algorithm", "--then")
    expect_usage_error(["bench", "allreduce", "--then", "scatter", "--against", "mpich"], "--then")


def test_workload(folder):
    path = os.path.join(folder, "rows.json")
    result = run("run", "-n", 4, tutti, "bench", "allreduce", "--workload", "resnet50", "--check", "--json", path, *QUICK,
                 TUTTI_ADJUST_ALLREDUCE="ring")
    expect(result.returncode == 0, "resnet50 over 4 ranks", result)
    rows = rows_of(path)
    expect(len(rows) == 23, "22 distinct sizes and a total", result)
    expect(all(row["wrong"] == 0 and row["algorithm"] == "ring" for row in rows), "0 wrong, by ring", result)
    total = rows[-1]
    expect(total["row"] == "total" and total["tensors"] == 161 and total["count"] == 25559081, f"total {total}", result)
    expect(sum(row["tensors"] * row["count"] for row in rows[:-1]) == total["count"], "the sizes make up the total", result)

    csv = os.path.join(folder, "mine.csv")

    def write(text):
        with open(csv, "w", encoding="utf-8") as out:
            out.write(text)

    words = ["bench", "allreduce", "-n", 2, "--workload", csv]
    write("tensor,elements\nembedding,5000\nbias,7\n\nhead,5000\n")
    result = run(*words, "--check", "--in-place", "--json", path, *QUICK)
    expect(result.returncode == 0, "a table of one's own", result)
    expect([(r["count"], r["tensors"], r["wrong"]) for r in rows_of(path)] == [(7, 1, 0), (5000, 2, 0), (10007, 3, 0)], "its rows", result)
    for text, *said in (("", "empty"), ("tensor,size\na,1\n", "line 1", "'elements'"), ("elements\n12x\n", "line 2", "12x"),
                        ("elements\n0\n", "line 2"), ("tensor,elements\na,1\nb\n", "line 3", "fields"), ("elements\n", "no rows"),
                        ("elements\n99999999999999999999\n", "line 2")):
        write(text)
        expect_usage_error(words, csv, *said)
    expect_usage_error(["bench", "allreduce", "--workload", folder + "/none.csv"], "none.csv")
    expect_usage_error(["bench", "allreduce", "--workload", "resnet49"], "resnet50", "inception3")
    expect_usage_error(["bench", "barrier", "--workload", "resnet50"], "barrier")

    # Beside arithmetic: calls that block and calls that are submitted, both right, both longer than nothing.
    write("tensor,elements\na,5000\nb,7\nc,300\n")
    result = run(*words, "--overlap", 2, "--rounds", 1, "--json", path, *QUICK)
    expect(result.returncode == 0 and "1 allreduces" not in result.stdout and "3 allreduces of" in result.stdout, "overlap", result)
    rows = rows_of(path)
    expect([(r["calls"], r["count"], r["wrong"], r["library"]) for r in rows]
           == [("blocking", 5307, 0, "tutti"), ("submitted", 5307, 0, "tutti")], f"its rows: {rows}", result)
    for row in rows:
        expect(row["arithmetic_us"] > 100 and abs(row["p50_us"] - row["arithmetic_us"] - row["exposed_us"]) < 1e-3 * row["p50_us"],
               f"exposed is what the calls add: {row}", result)
    expect_usage_error(["bench", "allreduce", "--workload", csv, "--overlap=-1"], "--overlap")
    expect_usage_error(["bench", "allreduce", "--workload", "resnet49", "--overlap", "1"], "resnet50")
    expect_usage_error(["bench", "allreduce", "--overlap", "1"], "--workload")
    expect_usage_error(["bench", "allgather", "--workload", csv, "--overlap", "1"], "allreduce only")
    expect_usage_error(["bench", "allreduce", "--workload", csv, "--overlap", "1"], "inside a job", RANK="0", WORLD_SIZE="2")
    check_step(folder, words, write)
    check_submitted(folder)
    check_then(folder)


def check_step(folder, words, write):
    """A training step: a row for each way to reduce its gradients."""
    path = os.path.join(folder, "steps.json")
    write("tensor,elements,forward_flops_per_image\na,5000,100\na,7,\nc,300,50\n")
    quick = ["--step", "--compute", "2ms", "--rounds", 1, "--iters", 3, "--json", path]
    for variables in ({}, {"TUTTI_FUSION_BYTES": "0"}, {"TUTTI_TRANSPORTS": "tcp"}):
        result = run("bench", *words[2:], *quick, **variables)
        expect(result.returncode == 0 and "3 tensors" in result.stdout, f"steps with {variables}", result)
        rows = rows_of(path)
        expect([row["calls"] for row in rows] == ["none", "whole", "plain", "named"], f"a row for each kind of calls: {rows}", result)
        for row in rows:
            expect(row["wrong"] == 0 and row["bytes"] == 4 * 5307 and row["tensors"] == 3 and row["iterations"] == 3, f"{row}", result)
            expect(row["p50_us"] > 100 and row["compute_us"] == 2000, f"the arithmetic takes time: {row}", result)
            exposed = row["p50_us"] - rows[0]["p50_us"]
            expect(abs(row["exposed_us"] - exposed) < 1e-3 * row["p50_us"], f"exposed is what the calls add: {row}", result)
    # By elements where the table has no operations, and as a rank of a job.
    write("elements\n5000\n7\n")
    result = run("run", "-n", 3, tutti, "bench", "--workload", words[-1], *quick)
    expect(result.returncode == 0 and [row["ranks"] for row in rows_of(path)] == [3] * 4, "steps in a job", result)
    write("elements,forward_flops_per_image\n5000,-1\n")
    expect_usage_error(words, words[-1], "line 2", "-1")
    write("elements\n5000\n")
    expect_usage_error(["bench", "--step"], "--workload")
    expect_usage_error([*words, "--compute", "1ms"], "--step")
    expect_usage_error([*words, "--step", "--compute", "1x"], "--compute", "1x")
    expect_usage_error([*words, "--step", "--hot"], "--hot", "--step")
    expect_usage_error(["bench", "allgather", "--step", "--workload", words[-1]], "--step", "allreduce only")
    expect_usage_error([*words, "--step", "--op", "premul_sum"], "premul_sum")


CEILINGS = "copy_fresh add_fresh vm_read copy copy_nt add add_nt".split()


def test_roofline(folder):
    path = os.path.join(folder, "rows.json")
    quick = ["--budget", "0.003", "--json", path]
    if len(os.sched_getaffinity(0)) < 2:
        sys.exit(SKIPPED)
    words = ["bench", "roofline", "-n", 2, "-e", "64k", "-f", 8, "--rounds", 1, *quick]
    for extra in ([], ["--threads"]):
        result = run(*words, *extra)
        expect(result.returncode == 0, f"roofline {extra}", result)
        rows = rows_of(path)
        expect(rows[0]["ceiling"] == "line" and rows[0]["p50_us"] > 0, f"the first row {rows[0]}", result)
        expect({row["ceiling"] for row in rows} - {"vm_read"} == {"line", "exchange", *CEILINGS} - {"vm_read"}, "every ceiling", result)
        expect("vm_read" in {row["ceiling"] for row in rows} or "vm_read: not measured" in result.stdout, "vm_read, or why not", result)
        for row in rows:
            expect(row["ranks"] == 2 and row["p50_us"] > 0 and row["GBs"] > 0, f"row {row}", result)
        for kind in ("copy_fresh", "add_nt"):
            points = [row for row in rows if row["ceiling"] == kind]
            expect([row["bytes"] for row in points] == [1 << 10, 8 << 10, 64 << 10], f"sizes of {kind}", result)
            expect(points[0]["p50_us"] <= points[2]["p50_us"], f"{kind} never gets faster", result)
        for text in ("GB/s", "us", "copy_fresh", "64 KiB", "L2"):
            expect(text in result.stdout, f"the table says {text}", result)
    result = run(*words, "-n", 1)
    expect(result.returncode == 0 and {row["ceiling"] for row in rows_of(path)} == {"copy", "copy_nt", "add", "add_nt"}, "one rank", result)
    result = run("run", "-n", 2, "--no-prefix", tutti, "bench", "roofline", "-e", "4k", "--rounds", 1, *quick)
    expect(result.returncode == 0 and rows_of(path)[0]["ceiling"] == "line", "inside a job", result)

    for collective, extra in (("allreduce", []), ("barrier", []), ("allgather", ["--in-place"]), ("broadcast", ["--check"])):
        result = run("bench", collective, "-n", 2, "-b", 64, "-e", "256k", "-f", 64, "--roofline", "--iters", 3, *quick, *extra)
        expect(result.returncode == 0 and "bound us" in result.stdout, f"{collective} with bounds", result)
        bounds = []
        for row in rows_of(path):
            expect(list(row) == [*FIELDS, "bound_us", "roofline_percent", "bound"], f"fields are {list(row)}", result)
            expect(abs(row["roofline_percent"] - 100 * row["bound_us"] / row["p50_us"]) < 1e-3 * row["roofline_percent"], f"row {row}", result)
            expect(row["bound"].startswith("line " if collective == "broadcast" else "exchange "), f"row {row}", result)
            bounds.append(row["bound_us"])
        expect(min(bounds) > 0, f"bounds {bounds}", result)
    with open(folder + "/mine.csv", "w", encoding="utf-8") as out:
        out.write("tensor,elements\na,5000\nb,7\nc,5000\n")
    result = run("bench", "allreduce", "-n", 2, "--workload", folder + "/mine.csv", "--roofline", "--iters", 3, *quick)
    rows = rows_of(path)
    expect(result.returncode == 0 and "sum" in rows[-1]["bound"], "a workload with bounds", result)
    whole = sum(row["bound_us"] * row["tensors"] for row in rows[:-1])
    expect(abs(whole - rows[-1]["bound_us"]) < 1e-3 * whole, "the total's bound is the sum", result)

    result = run("bench", "allreduce", "--puppet", "3,9", "--iters", 3, *quick)
    rows = rows_of(path)
    expect(result.returncode == 0 and "model us" in result.stdout, "one rank among puppets", result)
    expect([(row["ranks"], row["bytes"], row["wrong"]) for row in rows] == [(3, 8, 0), (9, 8, 0)], f"rows of puppets {rows}", result)
    expect(rows[0]["algorithm"] == "one_shot" and rows[0]["waits"] == rows[0]["read_lines"] == 2, f"lines of one_shot: {rows[0]}", result)
    expect(min(row["p50_us"] for row in rows) > 0 and rows[0]["model_us"] < rows[1]["model_us"], f"times of puppets {rows}", result)
    for puppets in (["2"], ["9", "-n", 2], ["9", "--puppet-rank", 9], ["9", "--b2b"], ["3,x"]):
        expect_usage_error(["bench", "allreduce", "--puppet", *puppets], "--puppet")
    for option in (["--dtype", "f32"], ["--check"], ["--hot"], ["--roofline"], ["--workload", "vgg16"], ["--against", "mpich"], ["--iters", 3]):
        expect_usage_error(["bench", "roofline", *option], option[0], "roofline measures no call")
    expect_usage_error(["bench", "roofline", "-b", 100], "multiples of 64")
    expect_usage_error(["bench", "roofline", "-n", 4096], "a CPU of its own")
    for option in (["--hot"], ["--b2b"], ["--against", "mpich"]):
        expect_usage_error(["bench", "allreduce", "--roofline", *option], "--roofline")


def test_info(_folder):
    result = run("info")
    expect(result.returncode == 0, "info", result)
    for name in ("inproc", "shm", "native"):
        pattern = rf"^  {name}: (available|not available \(.+\))"
        expect(re.search(pattern, result.stdout, re.M), f"a line about {name}", result)
    expect("inproc: available" in result.stdout and re.search(r"^algorithms: \d+ allreduce, ", result.stdout, re.M), "info's content", result)
    rows = run("info", "--algorithms")
    expect(rows.returncode == 0 and "\nallreduce\n  default on one node: " in "\n" + rows.stdout and "  recursive_doubling " in rows.stdout, "rows", rows)
    expect(re.search(r"^topology: this machine \(.+\)\n  \d+ sockets? x .*\n.*NUMA node.*\n  caches: .*\n  allowed: \d+ of", result.stdout, re.M),
           "the topology", result)
    info = json.loads(run("info", "--json").stdout)
    topology = info["topology"]
    expect(topology["available"] and topology["summary"].startswith("topology1 ") and len(topology["allowed_cpus"]) == info["allowed_cpus"],
           f"info --json: {topology}")
    one = subprocess.run(["taskset", "-c", str(max(os.sched_getaffinity(0))), tutti, "info"], capture_output=True, text=True, check=False,
                         env=clean_environment())
    expect(re.search(rf"^  allowed: 1 of \d+ PUs?, CPUs {max(os.sched_getaffinity(0))}$", one.stdout, re.M), "a narrower affinity", one)
    if "no hwloc" not in topology["detail"]:
        other = run("info", TUTTI_TOPOLOGY="synthetic:pack:2 l3:2 core:3 pu:2")
        expect("2 sockets x 6 cores x 2 PUs = 24 PUs" in other.stdout and "CPUs 0-23" in other.stdout, "another machine", other)
    with tempfile.TemporaryDirectory() as empty:
        hidden = run("info", TUTTI_MODULE_PATH=empty)
        expect(hidden.returncode == 0 and "inproc: available" in hidden.stdout, "without modules the rest is as it was", hidden)
        for name in ("ucx", "ofi"):
            if f"{name}: not available (left out" in result.stdout or re.search(rf"{name}: not available \(.* not found", result.stdout):
                continue
            expect(f"{name}: not available (libtutti_transport_{name}.so is in none of {empty})" in hidden.stdout, "no module", hidden)
    broken = run("info", TUTTI_TOPOLOGY="xml:/no/such/file")
    expect("topology: not available (TUTTI_TOPOLOGY='xml:/no/such/file'" in broken.stdout and "No such file" in broken.stdout, "no file", broken)
    expect({"version", "build", "compiler", "cpu", "transports", "backends", "algorithms", "default_rules"} <= set(info), "info --json")
    names = {(row["collective"], row["name"]) for row in info["algorithms"]}
    expect(("allreduce", "ring") in names and set(c for c, _ in names) == set(COLLECTIVES), "every collective has an algorithm")
    expect(all(row["cost"] and row["legality"] for row in info["algorithms"]), "every row has a cost and says when it may run")
    text = run("info", "--env", TUTTI_TIMEOUT="7s", TUTTI_SECRET="hush").stdout
    expect("TUTTI_TIMEOUT" in text and "7s" in text and "hush" not in text, "info --env: " + text)
    variables = {v["name"]: v for v in json.loads(run("info", "--env", "--json", TUTTI_SECRET="hush").stdout)}
    expect(variables["TUTTI_SECRET"]["value"] == "(set)" and variables["TUTTI_LOG"]["value"] is None, "info --env --json")
    started = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "host0", "MASTER_PORT": "29500", "TUTTI_SECRET": "hush"}
    bootstrap = run("info", "--bootstrap", **started)
    expect(bootstrap.returncode == 0 and "followed: torchrun" in bootstrap.stdout and "rank 1 of 2" in bootstrap.stdout
           and "TUTTI_SECRET=(set)" in bootstrap.stdout and "hush" not in bootstrap.stdout, "info --bootstrap", bootstrap)
    place = json.loads(run("info", "--bootstrap", "--json", **started).stdout)
    expect(place["place"]["host"] == "host0" and place["seen"][0]["launcher"] == "torchrun" and "hush" not in str(place), f"its JSON: {place}")
    bootstrap = run("info", "--bootstrap", RANK="1")
    expect(bootstrap.returncode == 1 and "WORLD_SIZE is not set" in bootstrap.stdout, "info --bootstrap, with an error", bootstrap)
    numbers = json.loads(run("info", "--rules", "--json").stdout)
    expect(any(n["collective"] == "allreduce" and n["algorithm"] == "ring" for n in numbers), "info --rules")
    expect(all((n["collective"], n["algorithm"]) in names for n in numbers), "every number names an algorithm that exists")


def test_explain(_folder):
    def explained(*words, **environment):
        result = run("explain", *words, "--json", **environment)
        expect(result.returncode == 0, f"explain {words}", result)
        return json.loads(result.stdout)

    rows = {}
    for row in json.loads(run("info", "--json").stdout)["algorithms"]:
        rows.setdefault(row["collective"], set()).add(row["name"])
    for collective in COLLECTIVES:
        answer = explained(collective, "64k", "-n", 12, "--ppn", 3)
        names = {c["algorithm"] for c in answer["candidates"]}
        expect(names == rows[collective], f"every row of {collective} is a candidate: {names}")
        chosen = [c for c in answer["candidates"] if c["chosen"]]
        expect(len(chosen) == 1 and chosen[0]["algorithm"] == answer["algorithm"], f"one choice of {collective}: {chosen}")
        for c in answer["candidates"]:
            expect(c["reason"] and c["legal"] == (c["predicted_us"] is not None), f"{collective}: {c}")
            if c["legal"]:
                parts = c["latency_us"] + c["bytes_us"] + c["reduction_us"]
                expect(abs(parts - c["predicted_us"]) < 1e-3, f"{collective}: the parts are the whole: {c}")
    shared = explained("allreduce", "16k", "-n", 2)
    expect((shared["algorithm"], shared["shared_buffers_algorithm"]) == ("one_shot", "two_shot"), f"shared buffers: {shared}")
    named = explained("allreduce", "16k", "-n", 2, TUTTI_ADJUST_ALLREDUCE="one_shot")
    expect(named["algorithm"] == "one_shot" and named["shared_buffers_algorithm"] is None, f"what is named holds for all buffers: {named}")
    forced = explained("allreduce", "2m", "-n", 6, TUTTI_ADJUST_ALLREDUCE="census:-1m;ring(segments=4):1m-")
    expect((forced["algorithm"], forced["source"], forced["item"]) == ("ring", "TUTTI_ADJUST_ALLREDUCE", 2), f"a user's rule: {forced}")
    expect(forced["rule"] == "ring(segments=4):1m-", f"the rule's text: {forced['rule']}")
    domains = explained("allreduce", "1m", "-n", 24, "--topology", "synthetic:pack:2 l3:1 core:12 pu:1")
    if domains["domains"]:  # a build without hwloc has none
        expect(domains["algorithm"] == "hierarchical", f"two sockets: {domains}")
    expect_usage_error(["explain", "allreduce", "4q"], "4q")
    expect_usage_error(["explain", "send_recv", "4"], "send_recv")
    expect_usage_error(["explain", "allreduce", "4", "-n", 0], "-n")
    expect_usage_error(["explain", "allreduce", "4", "--dtype", "f31"], "f31", "bf16")
    expect_usage_error(["explain", "allreduce", "4", "--transport", "pigeon"], "pigeon", "shm")
    expect_usage_error(["explain", "allreduce", "4", "--algorithm", "hierarchical"], "hierarchy")
    expect_usage_error(["explain", "allreduce", "4", "--topology", "/no/such/file"], "/no/such/file")
    expect_usage_error(["explain", "allreduce", "4"], "TUTTI_ADJUST_ALLREDUCE", "column 1", TUTTI_ADJUST_ALLREDUCE="rong")

    # The page's table is the tool's.
    page = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/choosing.md")
    with open(page, encoding="utf-8") as file:
        lines = [line.strip() for line in file if re.match(r"\| \w+ \| \d+ \|", line)]
    wanted = [f"| {r['collective']} | {r['number']} | {r['intel_name']} | `{r['algorithm']}` | {'substitute' if r['is_substitute'] else ''} |"
              for r in json.loads(run("info", "--rules", "--json").stdout)]
    expect(lines == wanted, f"docs/choosing.md: {set(lines) ^ set(wanted)}")


def test_explain_run(folder):
    """What is explained is what runs, as traces have it: with a CPU for each rank, where there are two, without, and by a user's rules."""
    cpus = len(os.sched_getaffinity(0))
    own_rules = {"TUTTI_ADJUST_BROADCAST": "linear:-1k;circulant(segments=2)"}
    cases = [("broadcast", 3, own_rules)] + [(collective, ranks, {}) for collective in ("allreduce", "reduce", "exscan")
                                             for ranks in (min(2, cpus), min(2 * cpus, 8))]
    for collective, ranks, rules in cases:
        trace = os.path.join(folder, f"{collective}-{ranks}.json")
        result = run("bench", collective, "-n", ranks, "-b", "64", "-e", "256k", "-f", "16", *QUICK, TUTTI_TRACE=trace, **rules)
        expect(result.returncode == 0, f"a traced bench of {collective}", result)
        with open(trace.replace(".json", ".0.json" if ranks > 1 else ".json"), encoding="utf-8") as file:
            spans = [e for e in json.load(file) if e["ph"] == "X" and e["name"] == collective and e["args"]["dtype"] == "f32"]
        ran = {(e["args"]["bytes"], e["args"]["algorithm"]) for e in spans}
        expect({size for size, _ in ran} >= {64, 1024, 16384, 262144}, f"{collective}: sizes of {ran}")
        for size, algorithm in ran:
            result = run("explain", collective, size, "-n", ranks, "--json", **rules)
            expect(result.returncode == 0, f"explain {collective} {size}", result)
            answer = json.loads(result.stdout)
            expect(answer["shares_cpus"] == (ranks > cpus), f"{ranks} ranks on {cpus} CPUs: {answer['shares_cpus']}")
            name, _, source = algorithm.partition(" by ")
            expect(name.split("(")[0].strip() == answer["algorithm"] and source == answer["decided_by"],
                   f"{collective} of {size} bytes over {ranks} ranks ran {algorithm}, and is said to be "
                   f"{answer['algorithm']} by {answer['decided_by']}")


def test_explain_device(_folder):
    """Who carries buffers on GPUs, of machines that are not there."""
    def explained(*words, **environment):
        result = run("explain", *words, "--device", "cuda", "--json", **environment)
        expect(result.returncode == 0, f"explain {words} --device cuda", result)
        return json.loads(result.stdout)

    on_gpus = explained("allreduce", "8k", "-n", 8)
    expect([c["engine"] for c in on_gpus["candidates"]] == ["one_shot", "nccl", "two_shot", "staged", "ipc_schedule"], f"by price: {on_gpus}")
    expect(on_gpus["carrier"] == on_gpus["engine"], "the deprecated name")
    expect((on_gpus["engine"], on_gpus["source"]) == ("one_shot", "price") and on_gpus["candidates"][0]["chosen"], f"the cheapest: {on_gpus}")
    expect(explained("allreduce", "64m", "-n", 8)["engine"] == "nccl", "long sums are NCCL's")
    expect(explained("scan", "4", "-n", 2)["engine"] == "ipc_schedule", "NCCL has no scans")
    far = explained("allreduce", "8k", "-n", 16, "--ppn", 8)
    expect((far["engine"], far["nodes"], far["reach"]) == ("nccl", 2, "across nodes"), f"on two nodes: {far}")
    slow = explained("allreduce", "8k", "-n", 8, "--gpu-link", "pcie")["candidates"][0]
    expect(slow["predicted_us"] > on_gpus["candidates"][0]["predicted_us"], f"by PCIe: {slow}")
    shared = explained("allreduce", "8k", "-n", 8, "--gpus", 4)
    reasons = {c["engine"]: (c["possible"], c["reason"]) for c in shared["candidates"]}
    expect(shared["engine"] == "staged" and not reasons["nccl"][0] and "take turns" in reasons["one_shot"][1], f"shared GPUs: {shared}")
    ruled = explained("allreduce", "8k", "-n", 8, TUTTI_ADJUST_ALLREDUCE="nccl:1m-;staged:-16k;ring")
    expect((ruled["engine"], ruled["item"], ruled["rule"]) == ("staged", 2, "staged:-16k"), f"a user's rule: {ruled}")
    expect(any("item 1 (nccl:1m-) is for other sizes" in c["reason"] for c in ruled["candidates"]), f"another rule: {ruled}")
    steps = explained("allreduce", "8k", "-n", 8, "--algorithm", "ring")
    expect((steps["engine"], steps["algorithm"], steps["decided_by"]) == ("ipc_schedule", "ring", "argument"), f"our schedules: {steps}")
    steps = explained("allreduce", "8k", "-n", 8, "--ppn", 4, "--algorithm", "ring")
    expect((steps["engine"], steps["algorithm"]) == ("staged", "ring"), f"our schedules, by way of the host: {steps}")
    expect(explained("scan", "4", "-n", 2)["algorithm"] == "recursive_doubling", "what schedule it is")
    table = run("explain", "allreduce", "8k", "-n", 8, "--device", "cuda")
    expect(table.returncode == 0 and re.search(r"one_shot +<- chosen", table.stdout) and "nobody has measured" in table.stdout
           and "assumed    CUDA's driver and NCCL" in table.stdout, "the table", table)
    expect_usage_error(["explain", "allreduce", "1m", "-n", 8, "--device", "cuda", "--algorithm", "one_shot"], "at most 262144 bytes")
    expect_usage_error(["explain", "allreduce", "4", "--device", "rocm"], "rocm", "cuda")
    expect_usage_error(["explain", "allreduce", "4", "--gpus", 4], "--device cuda")
    expect_usage_error(["explain", "allreduce", "4", "--device", "cuda", "--gpu-link", "string"], "string", "nvlink pcie")
    expect_usage_error(["explain", "allreduce", "4", "--device", "cuda", "--transport", "shm"], "--transport")
    expect_usage_error(["explain", "barrier", "0", "--device", "cuda"], "barrier")


def test_tuning(folder):
    """Tuning files: what uses which, what is refused and why; and what is explained is what runs, by the same rule."""
    def write(name, text):
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def tuning(rules, fingerprint=None):
        return json.dumps({"tutti_tuning": 1, "origin": "a test", "fingerprint": fingerprint or {}, "rules": rules}, indent=1)

    def explained(size, **environment):
        result = run("explain", "allreduce", size, "-n", 2, "--json", **environment)
        expect(result.returncode == 0, f"explain {environment}", result)
        return json.loads(result.stdout)

    def bench(size, *words, **environment):
        return run("bench", "allreduce", "-b", size, "-e", size, "-n", 2, *QUICK, *words, TUTTI_LOG="info", **environment)

    good = write("good.json", tuning({"allreduce": ["ring(segments=2):64k-", "census:-1k@2"], "allreduce across nodes": ["two_shot"]}))
    lines = [number for number, line in enumerate(open(good, encoding="utf-8"), 1) if "ring" in line or "census" in line]
    home = os.path.join(folder, "config")
    write("config/tutti/tuning.json", tuning({"allreduce anywhere": ["two_shot"]}))
    default = {"TUTTI_TUNING_FILE": "auto", "XDG_CONFIG_HOME": home}
    at_home = os.path.join(home, "tutti", "tuning.json")
    cases = (("64k", {"TUTTI_TUNING_FILE": good}, "ring", f"{good} line {lines[0]}"),
             ("512", {"TUTTI_TUNING_FILE": good}, "census", f"{good} line {lines[1]}"),
             ("4k", {"TUTTI_TUNING_FILE": good}, None, "default rules item "),
             ("64k", {"TUTTI_TUNING_FILE": good, "TUTTI_ADJUST_ALLREDUCE": "auto:1;rabenseifner"}, "rabenseifner", "TUTTI_ADJUST_ALLREDUCE item 2"),
             ("512", {"TUTTI_TUNING_FILE": good, "I_MPI_ADJUST_ALLREDUCE": "1:-4096"}, "recursive_doubling", "I_MPI_ADJUST_ALLREDUCE item 1"),
             ("64k", default, "two_shot", f"{at_home} line "),
             ("64k", {}, None, "default rules item "))
    for size, environment, algorithm, place in cases:
        answer = explained(size, **environment)
        expect(algorithm in (None, answer["algorithm"]), f"{environment}: {answer}")
        expect(answer["decided_by"].startswith(place), f"{environment}: {answer['decided_by']} is not {place}")
        ran = bench(size, **environment)
        expect(ran.returncode == 0, f"bench with {environment}", ran)
        found = re.findall(r"info: allreduce of \d+ bytes over 2 ranks: (\w+)\S*(?: \(shared buffers: \w+\))? by (.*)", ran.stderr)
        expect((answer["algorithm"], answer["decided_by"]) in found,
               f"what ran is what was explained: {found}, {answer['decided_by']}", ran)
    said = run("info", **default).stdout
    expect(f"tuning file: {at_home} (a test)" in said, "info names the tuning file: " + said[:600])
    expect("tuning file: none" in run("info").stdout, "info says that there is none")

    # Refused: named, that is an error with the reason; at the default path, a warning.
    damaged = [("other.json", tuning({"allreduce": ["ring"]}, {"node": "pigeon"}), 'it is for node "pigeon", and here it is "shm"'),
               ("machine.json", tuning({"allreduce": ["ring"]}, {"machine": "a large one"}), 'it is for machine "a large one"'),
               ("wrong.json", tuning({"allreduce": ["ring", "rong"]}), "wrong.json line 8 column 5: expected an algorithm of allreduce"),
               ("broken.json", '{\n"tutti_tuning": 1,\n', "broken.json line 3 column 1: ")]
    for name, text, said in damaged:
        path = write(name, text)
        for words in (["explain", "allreduce", "64k", "-n", 2], ["bench", "allreduce", "-b", "64k", "-e", "64k", "-n", 2, *QUICK]):
            result = run(*words, TUTTI_TUNING_FILE=path)
            expect(result.returncode != 0 and said in result.stderr and "TUTTI_TUNING_FILE" in result.stderr, f"{words[0]} with {name}", result)
        write("other/tutti/tuning.json", text)
        elsewhere = {"TUTTI_TUNING_FILE": "auto", "XDG_CONFIG_HOME": os.path.join(folder, "other")}
        result = bench("64k", **elsewhere)
        expect(result.returncode == 0 and result.stderr.count("the tuning file is not used") == 1, f"{name} at the default path", result)
        expect(said.replace(name, "tuning.json") in result.stderr and "by default rules item" in result.stderr, f"the reason of {name}", result)
        answer = explained("64k", **elsewhere)
        expect(answer["decided_by"].startswith("default rules") and answer["tuning"].startswith("not used: "), f"{name}: {answer['tuning']}")
    missing = run("explain", "allreduce", "64k", TUTTI_TUNING_FILE="/no/such/file")
    expect(missing.returncode == 2 and "/no/such/file" in missing.stderr, "a missing file", missing)

    # Ranks with other files: named, an error that lists the ranks; at the default path, nobody uses one.
    second = write("second.json", tuning({"allreduce": ["two_shot"]}))
    job = "exec \"$0\" bench allreduce -b 64k -e 64k --budget 0.02 --iters 3 --warmup 2"
    result = run("run", "-n", 2, "sh", "-c", f"[ $TUTTI_RANK = 1 ] && TUTTI_TUNING_FILE={second}; {job}", tutti, TUTTI_TUNING_FILE=good)
    expect(result.returncode != 0 and "must be equal on all ranks" in result.stderr and "'two_shot' on rank 1" in result.stderr, "two files", result)
    result = run("run", "-n", 2, "sh", "-c", f"[ $TUTTI_RANK = 1 ] && XDG_CONFIG_HOME=/nowhere; {job}", tutti, TUTTI_LOG="info", **default)
    expect(result.returncode == 0 and result.stderr.count("the tuning file is not used: what rank 1 of 2 would use") == 1, "one file", result)
    expect("by default rules item" in result.stderr, "then the defaults decide", result)

    # Rules of others: to a file that runs, and a list of what has no counterpart.
    imported = os.path.join(folder, "imported.json")
    result = run("tune", "--import", "CCL_ALLREDUCE=nreduce:0-8192;ring:8193-max;topo:1-2", "-o", imported, "--json")
    expect(result.returncode == 0, "import", result)
    answer = json.loads(result.stdout)
    expect(answer["form"] == "ccl" and answer["rules"] == 2 and "topo" in answer["unmapped"][0]["what"], f"import: {answer}")
    answer = explained("64k", TUTTI_TUNING_FILE=imported)
    expect(answer["algorithm"] == "ring" and answer["decided_by"].startswith(imported + " line "), f"an import decides: {answer['decided_by']}")
    rules = write("tuned.conf", "1\n2\n1\n0\n2\n0 3 0 0\n65536 1 0 0\n")
    result = run("tune", "--import", rules)
    expect(result.returncode == 0 and "recursive_doubling:-65535" in result.stdout and "line 7" in result.stderr, "import of Open MPI's", result)
    expect_usage_error(["tune", "--import", "/no/such/file"], "/no/such/file")
    expect_usage_error(["tune", "--import", write("bad.conf", "1\n2\nx\n")], "line 3 column 1")
    expect_usage_error(["tune", "--import", rules, "--form", "mpich"], "--form")


def planned(ranks, *words, **environment):
    result = run("info", "--plan", ranks, *words, "--json", **environment)
    expect(result.returncode == 0, f"info --plan {ranks} {words} {environment}", result)
    plan = json.loads(result.stdout)
    expect(len(plan["ranks"]) == ranks and [r["local_rank"] for r in plan["ranks"]] == list(range(ranks)), f"{ranks} ranks", result)
    return plan


def test_plan(folder):
    """Plans without running: for this machine, for described ones, and for files that hwloc's own variables name."""
    allowed = os.sched_getaffinity(0)
    for policy in ("auto", "off", "none", "core", "l3", "numa", "socket"):
        for rank in planned(3, "--bind", policy)["ranks"]:
            expect(rank["cpus"] and set(rank["cpus"]) <= allowed and rank["threads"] >= 1, f"{policy} on this machine: {rank}")
    expect_usage_error(["info", "--plan", "0"], "--plan", "4096")
    expect_usage_error(["info", "--plan", "2", "--bind", "cores"], "--bind", "'cores' is neither a policy", "socket")
    expect_usage_error(["info", "--plan", "2", "--bind", "0"], "1 entries for 2 ranks")
    expect_usage_error(["info", "--plan", "2"], "TUTTI_PIN", "'cores'", TUTTI_PIN="cores")
    expect_usage_error(["info", "--plan", "2"], "HWLOC_XMLFILE", "/no/such/file", HWLOC_XMLFILE="/no/such/file")
    if "no hwloc" in run("info").stdout:
        return
    xeon = {"TUTTI_TOPOLOGY": "synthetic:pack:2 [numa] l3:1 core:12 pu:1"}
    lists = lambda plan: [rank["cpu_list"] for rank in plan["ranks"]]
    expect(lists(planned(4, **xeon)) == ["0-5", "6-11", "12-17", "18-23"], "an even share is the default")
    expect(lists(planned(2, TUTTI_PIN="core", TUTTI_PIN_ORDER="scatter", **xeon)) == ["0", "12"], "from the variables")
    expect(lists(planned(2, "--bind", "0-5;6-11", TUTTI_PIN="core", **xeon)) == ["0-5", "6-11"], "an argument wins")
    text = run("info", "--plan", "2", "--bind", "socket", **xeon)
    expect(re.search(r"^2 local ranks, policy socket, order compact\n  rank CPUs .*\n  0    0-11  12    12      0 ", text.stdout, re.M), "as text", text)

    # A machine with GPUs, of which only the place in PCI is told, and NICs: by hwloc's variable.
    xml = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "topology", "data", "power9_two_sockets.xml")
    plan = planned(4, "--bind", "gpu", HWLOC_XMLFILE=xml, HWLOC_THISSYSTEM="0")
    expect(not plan["is_this_machine"] and plan["source"].endswith("power9_two_sockets.xml"), f"its source: {plan['source']}")
    found = [(r["cpu_list"], r["numa_node"], r["gpu"]["name"], r["gpu"]["number"], r["nic"]["name"]) for r in plan["ranks"]]
    expect(found == [("8-47", 0, "cuda0", 0, "mlx5_0"), ("48-87", 0, "cuda1", 1, "mlx5_1"),
                     ("96-135", 8, "cuda2", 2, "mlx5_2"), ("136-175", 8, "cuda3", 3, "mlx5_3")], f"by GPU: {found}")
    shared = planned(6, "--bind", "gpu", HWLOC_XMLFILE=xml)
    expect([r["gpu"]["number"] for r in shared["ranks"]] == [0, 1, 2, 3, 0, 1], f"more ranks than GPUs: {shared}")
    expect_usage_error(["info", "--plan", "2", "--bind", "gpu"], "'gpu'", "no GPU of this machine", "numa or auto", **xeon)

    # The same as a drawing, in text and as a picture.
    drawing = run("info", "--topology", "--plan", "4", HWLOC_XMLFILE=xml)
    for line in (r"^socket 1, CPUs 96-175$", r"^  NUMA node 8, 127.7 GiB$", r"^    10 x L3 10 MiB$", r"^ +(\[2 2\] ?){5} (\[3 3\] ?){5}$",
                 r"^  GPU cuda3, nvml3 \(Tesla V100-SXM2-16GB\): rank 3$", r"^  NIC mlx5_2, hsi2 .*: rank 2$"):
        expect(re.search(line, drawing.stdout, re.M), f"a line {line}", drawing)
    drawing = run("info", "--topology", "--plan", "6", "--bind", "gpu", HWLOC_XMLFILE=xml)
    for line in (r"^  GPU cuda1, .*: ranks? 1.*5$", r"^  GPU cuda2, .*: rank 2$"):
        expect(re.search(line, drawing.stdout, re.M), f"a line {line}", drawing)
    free = run("info", "--topology", **xeon)
    expect(free.returncode == 0 and "      . . . . . . . . . . . .\n" in free.stdout, "without ranks", free)
    shared = run("info", "--topology", "--plan", "6", "--bind", "core", TUTTI_TOPOLOGY="synthetic:core:4 pu:2")
    expect(re.search(r"^      0\|1 2\|3 4 +5$", shared.stdout, re.M), "ranks that share out the threads of a core", shared)
    picture = os.path.join(folder, "machine.svg")
    boxes = run("info", "--topology", "--plan", "4", "--json", "--plot", picture, HWLOC_XMLFILE=xml)
    expect(boxes.returncode == 0 and len(json.loads(boxes.stdout)["sockets"]) == 2, "the boxes as JSON", boxes)
    root = xml_tree.parse(picture).getroot()
    texts = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    expect(texts.count("3") == 10 and any("cuda3" in (text or "") for text in texts), f"the picture's texts: {texts}")
    expect_usage_error(["info", "--topology", "--plot", "machine.pdf"], "--plot", ".svg")
    expect_usage_error(["info", "--plot", "machine.svg"], "--topology")

    # The tree of another machine's /sys and /proc.
    root = os.path.join(folder, "root")
    for cpu in range(4):
        base = f"sys/devices/system/cpu/cpu{cpu}"
        package = cpu // 2
        siblings = "03" if package == 0 else "0c"
        for name, value in (("topology/physical_package_id", package), ("topology/core_id", cpu % 2), ("topology/core_cpus", f"{1 << cpu:02x}"),
                            ("topology/thread_siblings", f"{1 << cpu:02x}"), ("topology/package_cpus", siblings),
                            ("topology/core_siblings", siblings), ("online", 1)):
            path = os.path.join(root, base, name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "w", encoding="utf-8") as file:
                file.write(f"{value}\n")
    for name in ("online", "possible", "present"):
        with open(os.path.join(root, "sys/devices/system/cpu", name), "w", encoding="utf-8") as file:
            file.write("0-3\n")
    plan = planned(2, "--bind", "socket", HWLOC_FSROOT=root)
    expect(not plan["is_this_machine"] and lists(plan) == ["0-1", "2-3"], f"HWLOC_FSROOT: {plan}")


def made_up_times(path, system, alpha, beta, gamma, nodes=16):
    """Times of allreduces as a machine with these costs (us, us/B) would have them, and a default that is always the ring."""
    rounds = nodes.bit_length() - 1
    with open(path, "w", encoding="utf-8") as file:
        file.write("system,nnodes,tasks_per_node,collective,algo,elements_int32,median_us\n")
        for elements in (8, 512, 4096, 32768, 262144, 2097152, 16777216):
            size = 4 * elements
            share = size * (nodes - 1) / nodes
            times = {"doubling": rounds * (alpha + size * (beta + gamma)),
                     "halves": 2 * rounds * alpha + share * (2 * beta + gamma),
                     "around": 2 * (nodes - 1) * alpha + share * (2 * beta + gamma)}
            times["default_x"] = times["around"]
            for name, us in times.items():
                file.write(f'{system},{nodes},1,ALLREDUCE,"{name}",{elements},{us:.6f}\n')


def test_tune(folder):
    times, names = folder + "/times.csv", folder + "/names.csv"
    with open(names, "w", encoding="utf-8") as file:
        file.write("collective,algo,algorithm\nALLREDUCE,around,ring\nALLREDUCE,halves,rabenseifner\nALLREDUCE,doubling,recursive_doubling\n")
    for alpha, beta, gamma in ((2, 5e-5, 1e-4), (30, 8e-4, 1e-5), (0.5, 4e-5, 2e-3)):
        made_up_times(times, "made_up", alpha, beta, gamma)
        result = run("tune", "--evaluate", times, "--map", names, "--json")
        expect(result.returncode == 0, "tune --evaluate", result)
        answer = json.loads(result.stdout)
        made_up = answer["systems"]["made_up"]
        expect(made_up["points"] == 7 and made_up["regret"] < 1.0001 and made_up["winner_accuracy"] == 1, f"a machine like the model: {made_up}")
        expect(made_up["default_regret"] > 1.5 and made_up["choice_over_default"] < 0.7, f"the default is bad: {made_up}")
        expect(set(answer["jobs"][0]["fitted"]) == {"doubling", "halves"}, f"fitted on two: {answer['jobs']}")
        for point in answer["points"]:  # the third algorithm's times were not seen, all others' are met
            expect(abs(point["predicted_us"] - point["chosen_us"]) < 0.01 * point["chosen_us"], f"predicted as measured: {point}")
    result = run("tune", "--evaluate", times, "--map", names)
    expect(result.returncode == 0 and "made_up" in result.stdout and "regret" in result.stdout, "the table for people", result)

    with open(names, encoding="utf-8") as file:
        good_names = file.read()
    with open(names, "w", encoding="utf-8") as file:
        file.write(good_names + 'BCAST,former,"hierarchical(columns=1,across=1)"\n')
    result = run("tune", "--evaluate", times, "--map", names)
    expect(result.returncode == 0, "columns= is a deprecated name of leaders=", result)
    with open(names, "w", encoding="utf-8") as file:
        file.write(good_names + "ALLREDUCE,default_x,ring\n")
    expect_usage_error(["tune", "--evaluate", times, "--map", names], "line 5", "default_x")
    for text, said in (("collective,algo\n", "algorithm"), ("", "names of the columns"), ("collective,algo,algorithm\nALLREDUCE,a\n", "line 2"),
                       ("collective,algo,algorithm\nALLREDUCE,a,rong\n", "rong"), ("collective,algo,algorithm\nALL,a,ring\n", "ALL"),
                       ('collective,algo,algorithm\nALLREDUCE,"a,ring\n', "quote"), ("collective,algo,algorithm\nALLREDUCE,a,auto\n", "auto"),
                       ("collective,algo,algorithm\nALLREDUCE,around,ring\n", "nothing to evaluate")):
        with open(names, "w", encoding="utf-8") as file:
            file.write(text)
        expect_usage_error(["tune", "--evaluate", times, "--map", names], said)
    with open(times, "a", encoding="utf-8") as file:
        file.write("made_up,16,1,ALLREDUCE,ring,8,-1\n")
    expect_usage_error(["tune", "--evaluate", times, "--map", names], "line 30", "median_us")
    expect_usage_error(["tune"], "--evaluate")
    expect_usage_error(["tune", "--evaluate", folder + "/none.csv", "--map", names], "none.csv")


def tune(ranks, path, *words, right=(0,), **environment):
    result = run("run", "-n", ranks, "--no-prefix", tutti, "tune", "--collectives", "allgather", "--sizes", "4-1k", "--budget", "2s", "-o", path,
                 *words, **environment)
    expect(result.returncode in right, f"tune with {ranks} ranks", result)
    return result


def test_tune_job(folder):
    """A tiny budget: what is measured may be noise, but the file and the rules in it must be right."""
    for words, said in ((["--budget", "0"], "--budget"), (["--budget", "soon"], "--budget"), (["--sizes", "1k-4"], "--sizes"), (["--sizes", "x"], "--sizes"),
                        (["--collectives", "allreduce,allgater"], "allgater"), (["--mode", "cold"], "--mode"), ([], "tutti run")):
        expect_usage_error(["tune", *words], said)
    path = folder + "/new/tuning.json"
    answer = json.loads(tune(2, path, "--json").stdout)
    points = answer["points"]
    expect({point["collective"] for point in points} == {"allgather"} and {8, 16, 64, 256, 1024} <= {point["bytes"] for point in points},
           f"the sizes that were asked for: {points}")
    for point in points:
        expect(point["default"] and point["default_us"] > 0 and point["ratio"] >= 1 and point["others"], f"point {point}")
    expect(0 <= answer["default_within_10_percent"] <= 1 and answer["default_worst"] >= 1 and answer["file"] == path, f"sums {answer}")
    with open(path, encoding="utf-8") as file:
        written = json.load(file)
    expect(written["rules"] == answer["rules"], f"what was written is what was said: {written}")
    expect("tune" in written["origin"] and written["fingerprint"], f"the rest of the file: {written}")

    # Rules for other numbers of ranks stay, those of this one are replaced.
    written["rules"] = {"allgather": ["ring:-1k@2", "bruck:-2k@7"], "barrier": ["dissemination:0-@2"]}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(written, file)
    table = tune(2, path, "--verify", right=(0, 1), TUTTI_TUNING_FILE=path)
    expect((table.returncode == 1) == ("  slower\n" in table.stdout), "the status says whether a rule made calls slower", table)
    table = table.stdout
    expect("default choice is within 10 %" in table and path in table, "the table for people:\n" + table)
    with open(path, encoding="utf-8") as file:
        rules = json.load(file)["rules"]
    expect("ring:-1k@2" not in rules["allgather"] and rules["allgather"][-1] == "bruck:-2k@7" and rules["barrier"], f"merged: {rules}")
    result = run("explain", "allgather", 1024, "-n", 7, "--json", TUTTI_TUNING_FILE=path)
    expect(result.returncode == 0 and json.loads(result.stdout)["algorithm"] == "bruck", "the file is used", result)

    with open(path, "w", encoding="utf-8") as file:
        file.write("something else")
    result = run("run", "-n", 2, tutti, "tune", "--collectives", "barrier", "--budget", "1s", "-o", path)
    expect(result.returncode == 2 and "no tuning file" in result.stderr, "what is no tuning file is not overwritten", result)


def test_schedule(folder):
    path = os.path.join(folder, "schedule.txt")

    def check(text):
        with open(path, "w", encoding="utf-8") as out:
            out.write(text)
        return run("schedule", "--check", path)

    for words in (["allreduce", "ring"], ["allreduce", "ring", "--in-place", "--loops"], ["allreduce", "two_shot", "--lowered"],
                  ["allgather", "bruck(radix=3)"], ["allreduce", "ring", "--segments", 3, "--channels", 2, "--fused"],
                  ["broadcast", "knomial", "--root", 2], ["barrier", "dissemination"]):
        printed = run("schedule", *words, "-n", 5)
        expect(printed.returncode == 0 and printed.stdout.count("schedule ") == 5, f"schedule {words}", printed)
        checked = check(printed.stdout)
        expect(checked.returncode == 0 and checked.stdout.startswith("proved"), f"proof of {words}", checked)
    printed = run("schedule", "allreduce", "ring", "-n", 4)
    checked = check(re.sub(r"send input\[\d\] to \d", lambda m: m.group(0)[:-1] + "0", printed.stdout, count=1))
    expect(checked.returncode != 0, "a schedule with a wrong peer is refused", checked)
    checked = check(printed.stdout.replace("scratch.0[", "scratch.9[", 1))
    expect(checked.returncode != 0, "a schedule with a slot out of bounds is refused", checked)
    one = run("schedule", "allreduce", "ring", "-n", 4, "--rank", 2)
    expect(one.stdout.count("schedule ") == 1 and one.stdout in printed.stdout, "one rank of it", one)
    goal = run("schedule", "allreduce", "ring", "-n", 4, "--goal")
    expect(goal.returncode == 0 and goal.stdout.startswith("num_ranks 4"), "GOAL", goal)
    dot = run("schedule", "allreduce", "ring", "-n", 4, "--dot")
    expect(dot.returncode == 0 and dot.stdout.startswith("digraph"), "dot", dot)
    expect_usage_error(["schedule", "allreduce"], "two_shot")
    expect_usage_error(["schedule", "allreduce", "rong"], "two_shot")
    expect_usage_error(["schedule", "sum", "ring"], "allreduce")
    expect_usage_error(["schedule", "broadcast", "knomial", "--root", 4], "--root")
    expect_usage_error(["schedule", "allreduce", "ring", "--root", 1], "no root")
    expect_usage_error(["schedule", "allreduce", "ring", "--rank", 4], "--rank")
    expect_usage_error(["schedule", "allreduce", "ring", "-n", 0], "-n")
    expect_usage_error(["schedule", "allreduce", "two_shot", "--lowered", "--goal"], "lowered")
    expect_usage_error(["schedule", "--check", folder + "/none"], "none")
    with open(path, "w", encoding="utf-8") as out:
        out.write("schedule allreduce rank zero\n")
    expect_usage_error(["schedule", "--check", path], "line 1")


FAKE_PEER = """#!/usr/bin/env python3
import json, sys
print("a launcher's own line")
print("ready", flush=True)
for line in sys.stdin:
    words = line.split()
    if words[0] == "quit":
        break
    if words[2] == "16" and sys.argv[1] == "frail":
        sys.exit("out of luck")
    keys = dict(word.split("=") for word in words[3:])
    if keys["dtype"] == "i64":
        print(json.dumps({"error": "no i64 here"}), flush=True)
        continue
    name = {"good": "gloo", "launched": "intelmpi"}.get(sys.argv[1], "mpich")
    print(json.dumps({"library": name, "algorithm": sys.argv[1], "transport": "none",
                      "backend": "Fake 1.2", "iterations": int(keys["iters"]), "p50_us": 1e6, "p95_us": 1e6, "min_us": 1e6,
                      "mean_us": 1e6, "wrong": 0}), flush=True)
"""


def test_against(folder):
    """With peers that are scripts: a good one, one that dies, one in an environment of its own, and two that are not installed."""
    with open(folder + "/fake", "w", encoding="utf-8") as out:
        out.write(FAKE_PEER)
    os.chmod(folder + "/fake", 0o755)

    os.mkdir(folder + "/intelmpi")
    os.symlink("/usr/bin/env", folder + "/intelmpi/launch")

    def library(program, word, source=None, command=()):
        return {"program": program, **(source or {"packages": ["a-package"]}),
                "launch": {"command": list(command), "fits": [], "oversubscribed": [], "program_arguments": [word, "{ranks}"]},
                "settings": {"one": {"transport": "none", "environment": {}, "launch_arguments": [], "program_arguments": []}},
                "choose": [{"from": 0, "to": 4, "setting": "one", "algorithm": "small"}, {"setting": "one"}]}

    with open(folder + "/settings.json", "w", encoding="utf-8") as out:
        json.dump({"libraries": {"gloo": library("fake", "good"), "mpich": library("fake", "frail"),
                                 "openmpi": library("missing", ""),
                                 "intelmpi": library("fake", "launched", {"pypi": []}, ["{environment}/launch", "A=B"]),
                                 "oneccl": library("fake", "good", {"pypi": []}, ["{environment}/launch"])}}, out)
    path = folder + "/rows.json"
    words = ["bench", "allreduce", "-n", 2, "-b", 4, "-e", 64, "--against", "openmpi,mpich,oneccl,intelmpi,gloo", "--peers-dir", folder,
             "--rounds", 2, "--json", path, "--check", *QUICK]
    result = run(*words)
    expect(result.returncode == 0, "a comparison", result)
    expect("openmpi: not available" in result.stdout and "a-package" in result.stdout, "a peer that is not there is said", result)
    expect(f"oneccl: not available ({folder}/oneccl/launch is not there; tools/dev/peers oneccl)" in result.stdout,
           "an environment that is not there is said", result)
    expect("\n# gloo: Fake 1.2\n# intelmpi: Fake 1.2\n" in result.stdout, "versions", result)
    expect("mpich:one: the program ended; it wrote: out of luck" in result.stderr, "a peer that dies is said", result)
    rows = rows_of(path)
    expect([(r["library"], r["bytes"]) for r in rows] == [("tutti", 4), ("mpich", 4), ("intelmpi", 4), ("gloo", 4), ("tutti", 16),
                                                          ("intelmpi", 16), ("gloo", 16), ("tutti", 64), ("intelmpi", 64), ("gloo", 64)], f"rows {rows}", result)
    for row in rows:
        own = row["library"] == "tutti"
        expect(list(row) == ["library", *FIELDS, *(["best_peer", "ratio"] if own else [])], f"fields {row}", result)
        if own:
            expect(row["best_peer"] in ("gloo", "mpich", "intelmpi") and row["wrong"] == 0, f"row {row}", result)
            expect(abs(row["ratio"] - 1e6 / row["p50_us"]) < 1e-4 * row["ratio"], f"ratio of {row}", result)
    result = run(*words, "--dtype", "i64")
    expect(result.returncode == 0 and "no i64 here" in result.stderr, "a peer that refuses is said", result)
    expect("best_peer" not in rows_of(path)[0], "no peer, no ratio", result)
    expect_usage_error(["bench", "allreduce", "--against", "gloo", "--peers-dir", folder + "/none"], "settings.json")
    with open(folder + "/settings.json", "w", encoding="utf-8") as out:
        out.write('{"libraries": {\n  "gloo": {},\n}}\n')
    expect_usage_error(["bench", "allreduce", "--against", "gloo", "--peers-dir", folder], "settings.json: line 3 column 1")


# A peer across nodes: says what it was told.
NODES_PEER = """#!/usr/bin/env python3
import json, os, sys
print("ready", flush=True)
for line in sys.stdin:
    if line.startswith("quit"):
        break
    print(json.dumps({"library": "gloo", "algorithm": " ".join(sys.argv[1:]), "transport": os.uname().nodename, "backend": "", "iterations": 1,
                      "p50_us": 1.0, "p95_us": 1.0, "min_us": 1.0, "mean_us": 1.0, "wrong": 0}), flush=True)
"""


def test_nodes(folder):
    """A comparison with ranks on nodes of a bed."""
    with open(folder + "/fake", "w", encoding="utf-8") as out:
        out.write(NODES_PEER)
    os.chmod(folder + "/fake", 0o755)
    words = "{ranks} {ranks_per_node} {hosts} {slots} {network} {hub}".split()
    manner = {"launch": {"command": [], "fits": [], "oversubscribed": [], "program_arguments": words},
              "settings": {"one": {"transport": "none", "environment": {}, "launch_arguments": [], "program_arguments": []}}}
    only_here = {"program": "fake", "packages": [], "launch": manner["launch"], "settings": {}, "choose": []}
    across = {**manner, "choose": [{"max_ranks_per_node": 1, "setting": "none"}, {"setting": "one"}]}
    with open(folder + "/settings.json", "w", encoding="utf-8") as out:
        json.dump({"libraries": {"gloo": {**only_here, "across_nodes": across}, "mpich": only_here}}, out)
    path = folder + "/rows.json"
    result = run("bench", "allreduce", "--nodes", "2x2", "--rate", "1gbit", "-b", 4, "-e", 64, "-f", 16, "--against", "gloo,mpich", "--peers-dir",
                 folder, "--rounds", 2, "--json", path, "--check", *QUICK, TUTTI_TRANSPORTS="shm,ucx", UCX_TLS="tcp,self")
    if result.returncode == SKIPPED or "no transport reaches" in result.stderr or re.search("TUTTI_TRANSPORTS.*ucx", result.stderr):
        print("skipped: " + (result.stderr.strip() or "no nodes here"))
        sys.exit(SKIPPED)
    expect(result.returncode == 0, "a comparison across nodes", result)
    expect("4 ranks on 2 nodes of this machine at 1gbit" in result.stdout, "the heading", result)
    expect("mpich: not available (settings.json has it on one node only)" in result.stdout, "a peer on one node", result)
    rows = rows_of(path)
    expect([(r["library"], r["bytes"], r["ranks"], r["nodes"], r["wrong"]) for r in rows]
           == [("tutti", 4, 4, 2, 0), ("gloo", 4, 4, 2, 0), ("tutti", 64, 4, 2, 0), ("gloo", 64, 4, 2, 0)], f"rows {rows}", result)
    expect(rows[0]["transport"] == "shm+ucx", "inside and between nodes", result)
    expect(rows[1]["algorithm"] == "4 2 10.77.0.1,10.77.0.2 10.77.0.1:2,10.77.0.2:2 10.77.0.0/24 10.77.0.254", f"row {rows[1]}", result)


def test_curves():
    """A comparison and the bounds of another run in one picture."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "cli", "plot"))
    sys.dont_write_bytecode = True
    plot_bench = importlib.import_module("plot_bench")
    compared = [{"library": library, "bytes": size, "p50_us": us, "rate": 1.0} for library, us in (("tutti", 2), ("openmpi", 3)) for size in (4, 64)]
    bounds = [{"bytes": size, "p50_us": 4.0, "rate": 1.0, "bound_us": 1.0} for size in (4, 64)]
    curves = plot_bench.make_curves(compared + bounds)
    expect(set(curves) == {"tutti", "openmpi", "bound"}, f"curves are {list(curves)}")
    expect([row["p50_us"] for row in curves["tutti"]] == [2, 2], "tutti's own curve is that of the comparison")
    expect([(row["p50_us"], row["rate"]) for row in curves["bound"]] == [(1.0, 4.0)] * 2, "the bound's time and rate")


def test_plot(folder):
    """A .svg needs no package; a .png is drawn where some python3 has matplotlib, and where none has a message says so."""
    test_curves()
    words = ["bench", "allreduce", "-n", 2, "-b", 4, "-e", "4k", "-f", 32, "--plot"]
    result = run(*words, folder + "/plot.svg", *QUICK)
    expect(result.returncode == 0, "a plot without matplotlib", result)
    svg = "{http://www.w3.org/2000/svg}"
    root = xml_tree.parse(folder + "/plot.svg").getroot()
    curves = [len(line.get("points").split()) for line in root.iter(svg + "polyline")]
    expect(curves.count(3) == 2 and root.find(svg + "title") is not None, f"three sizes in two charts: {curves}", result)
    result = run(*words, folder + "/plot.png", *QUICK)
    if result.returncode == 0:
        with open(folder + "/plot.png", "rb") as picture:
            expect(picture.read(4) == b"\x89PNG", "a picture", result)
    else:
        expect("python3-matplotlib" in result.stderr and ".svg" in result.stderr, "the message says what is missing", result)
    if len(os.sched_getaffinity(0)) > 1:
        for words in (["roofline", "-e", "8k", "--rounds", 1], ["allreduce", "--roofline", "-b", "4k", "-e", "64k"]):
            result = run("bench", *words, "-n", 2, "--budget", "0.003", "--plot", folder + "/roofline.svg")
            with open(folder + "/roofline.svg", "rb") as picture:
                expect(result.returncode == 0 and picture.read(8).startswith(b"<?xml"), f"a plot of {words}", result)
            os.remove(folder + "/roofline.svg")
    expect(not [name for name in os.listdir(folder) if name.startswith("tutti-bench")], "no temporary file is left")


def main():
    global tutti
    part, tutti = sys.argv[1], os.path.abspath(sys.argv[2])
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        globals()["test_" + part](folder)
    print("passed")


if __name__ == "__main__":
    main()
