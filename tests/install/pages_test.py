#!/usr/bin/env python3
"""Runs the commands that README and docs show, as far as they can run here, and compares their output with the pages.

Each line of a block marked `sh` is a command. A command is run unless LEFT_OUT says why not; measurements are cut short. Every
command of `tutti`, in blocks and in running text, has only options that its help lists. Knows pages and the built tool.
Usage: pages_test.py SOURCE_FOLDER BUILD_FOLDER TOOL EXAMPLE_PROGRAM
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

SECONDS = 60  # for one command
FOREIGN = re.compile(r"^(TUTTI_|PMI|PMIX_|OMPI_|SLURM_|MPI_|HOROVOD_|I_MPI_|MLSL_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_)")
NOT_READ = ("docs/notebook/",)

# Why a command is not run here: the first pattern that is found in it decides.
LEFT_OUT = [
    (r"^(?:meson|ninja|pip|g\+\+|cc|pkg-config)\s|\bvenv\b|^tools/(?:quickstart|check|dev/wheels|dev/peers|dev/debs)\b", "builds or installs; tests of the suites multiprocess and wheels do that"),
    (r"\b(?:mpirun|mpiexec|srun|torchrun)\b", "needs a launcher; the tests launcher_* and torch_* start with them"),
    (r"^tutti (?:doctor|top)\b", "needs a job that hangs; the tests doctor and top have such"),
    (r"^podman\b", "needs a container engine, and images of others"),
    (r" -H ", "needs other hosts; the tests of tests/multinode have such"),
    (r"--nodes\b", "makes network namespaces; the test tools_nodes does that"),
    (r"--against\b|plot_bench\.py|guidelines\.py|many-core-check", "measures other libraries, or for minutes; the tests tools_against, tools_plot, peers_* and many_core_check do that"),
    (r"--puppet .*128", "takes gigabytes and many seconds; the test tools_roofline plays fewer ranks"),
    (r"bench .*--device cuda|--bind gpu tutti bench", "needs a GPU; the test tools_bench_gpu has a stand-in"),
    (r"0,1,12,13|0-1;12-13", "needs a machine with 24 cores"),
    (r"^tutti info --plan \d+ --bind gpu", "needs a GPU; the same command with TUTTI_TOPOLOGY is run"),
    (r"tune$", "measures for three minutes; the same command with a budget is run"),
    (r"python train\.py", "runs a program of the reader's; the tests horovod_* start such"),
    (r"examples/torch/|(?:python_overhead|jax_allreduce|tensorflow_allreduce)\.py", "trains or measures for minutes; the tests torch_examples_* train"),
    (r"--workload .*--overlap|--workload vgg16", "needs 200 MB and more for each rank; the test tools_workload measures such"),
    (r"<prefix>|\./train", "has a placeholder; the test consumer_mlsl links such a program"),
    (r"build/bench/", "needs a target that is built on demand"),
    (r"^cd ", "a folder of commands that are not run here"),
    (r"api_reference|check_layers\.py", "has a test of its own in the suite lint"),
]

# Output of another program than the one that is run here.
NOT_COMPARED = re.compile(r"TUTTI_STALL_WARNING|TUTTI_CHECK")

NODE_XML = "tests/topology/data/power9_two_sockets.xml"  # a machine with GPUs
FILES = {
    "times.csv": "system,nnodes,tasks_per_node,collective,algo,elements_int32,median_us\n" + "".join(
        f"made_up,16,1,ALLREDUCE,{algorithm}_ompi,{4 ** i},{10 + factor * 4 ** i}\n"
        for algorithm, factor in (("ring", 1), ("rabenseifner", 2), ("recursive_doubling", 3)) for i in range(2, 9)),
    "tuned_rules.conf": "1\n2\n1\n4\n2\n0 3 0 0\n65536 4 0 0\n",
    "nccl_tuner.conf": "allreduce,0,65536,tree,simple,2,1,-1,-1,-1\n",
    "train.py": "import tutti\ntutti.init()\ntutti.barrier()\n",
    "program.py": "import tutti\ntutti.init()\ntutti.barrier()\n",
}
failures = []


def expect(condition, message):
    if not condition:
        failures.append(message)
        print("FAILED: " + message, flush=True)


def pages(source):
    yield "README.md"
    for folder, _, names in os.walk(os.path.join(source, "docs")):
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), source)
            if name.endswith(".md") and not path.startswith(NOT_READ):
                yield path


def blocks(text):
    """Yields (language, [line]) of the code blocks of a page."""
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield language, body.splitlines()


def command_of(line):
    """The command of a line without its comment."""
    return re.sub(r"\s+#\s.*$", "", line).strip()


class Runner:
    def __init__(self, source, build, tool, program, folder):
        self.folder, self.help, self.ran, self.reasons = folder, {}, 0, {}
        for name in ("docs", "bench", "tools", "examples"):
            os.symlink(os.path.join(source, name), os.path.join(folder, name))
        os.makedirs(os.path.join(folder, "build", "tools"))
        os.makedirs(os.path.join(folder, "build", "examples"))
        os.symlink(tool, os.path.join(folder, "build", "tools", "tutti"))
        os.symlink(program, os.path.join(folder, "build", "examples", "example_allreduce"))
        os.symlink(program, os.path.join(folder, "program"))
        os.symlink(os.path.join(source, NODE_XML), os.path.join(folder, "node.xml"))
        os.makedirs(os.path.join(folder, "bin"))
        os.symlink(tool, os.path.join(folder, "bin", "tutti"))
        os.symlink(sys.executable, os.path.join(folder, "bin", "python"))
        for name, text in FILES.items():
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)
        self.environment = {name: value for name, value in os.environ.items() if not FOREIGN.match(name)}
        self.environment.update(PATH=os.path.join(folder, "bin") + ":" + os.environ["PATH"], TUTTI_TUNING_FILE="off", XDG_CONFIG_HOME=folder,
                                PYTHONPATH=os.path.join(build, "bindings", "python"))
        self.has_hwloc = self.shell("TUTTI_TOPOLOGY='synthetic:core:1 pu:1' tutti info --plan 1").returncode == 0
        self.has_python = self.shell("python -c 'import tutti'").returncode == 0

    def shell(self, command):
        return subprocess.run(["bash", "-c", command], cwd=self.folder, env=self.environment, stdin=subprocess.DEVNULL, text=True, check=False,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=SECONDS)

    def reason_not_to_run(self, command):
        for pattern, reason in LEFT_OUT:
            if re.search(pattern, command):
                return reason
        if re.search(r"\bpython3? \w+\.py", command) and not self.has_python:
            return "this build has no Python package"
        if re.search(r"TUTTI_TOPOLOGY|--topology '|--node \w", command) and not self.has_hwloc:
            return "this build has no hwloc"
        if command.startswith("jq ") and not shutil.which("jq"):
            return "jq is not installed"
        return None

    def run(self, page, command):
        """Runs a command of a page unless there is a reason not to; returns its output or None."""
        reason = self.reason_not_to_run(command)
        if reason:
            self.reasons[reason] = self.reasons.get(reason, 0) + 1
            return None
        print(f"+ {page}: {command}", flush=True)
        done = self.shell(shortened(command))
        self.ran += 1
        expect(done.returncode == 0, f"{page}: `{command}` ends with status {done.returncode}:\n{done.stdout}")
        return done.stdout

    def check_options(self, page, command):
        """All options of a command of `tutti` are in its help."""
        for found in re.finditer(r"(?:^|[\s/&|])tutti ((?:bench|explain|info|verify|schedule|tune|run)\b)([^&|>]*)", command):
            name, rest = found.groups()
            if name not in self.help:
                done = self.shell(f"tutti {name} --help")
                self.help[name] = done.stdout + (self.shell("tutti tune --import=- --help").stdout if name == "tune" else "")
            words = rest.split(" tutti ")[0] if name == "run" else rest
            program = re.search(r"\s(?:\./|\w+/|python|--\s)", words) if name == "run" else None
            for option in re.findall(r"(?:^|\s)(--?[a-z][\w-]*)", words[:program.start()] if program else words):
                expect(re.search(rf"(?<![\w-]){option}(?![\w-])", self.help[name]), f"{page}: `tutti {name}` has no option {option}")


def shortened(command):
    """A measurement of few calls at few sizes."""
    if command.startswith("export "):
        return command + "; tutti explain allreduce 64k -n 16 && tutti explain broadcast 64k -n 16"
    if not re.search(r"\btutti bench\b", command):
        return command
    command = re.sub(r" (?:-b|-e|-f|--rounds|--budget) \S+", "", command)
    command = re.sub(r"--compute \S+", "--compute 10ms --iters 2 --warmup 1", command)  # steps that take a second each on a busy machine
    sizes = "-b 1k -e 1k" if "roofline" in command else "-b 64 -e 64"
    return f"{command} {'' if '--workload' in command else sizes} --budget 0.02" + (" --rounds 1" if re.search("roofline|submitted", command) else "")


def masked(line):
    return re.sub(r"\s+", " ", re.sub(r"\d[\d.,]*", "N", line)).strip()


def check_output(page, command, shown, printed):
    """The lines of a page stand in the printed ones, in this order; numbers may differ. Of measurements only the names of columns count."""
    if NOT_COMPARED.search(command):
        return
    is_measured = re.search(r"\b(?:bench|tune)\b", command) is not None
    have = [masked(line) for line in printed.splitlines()]
    for line in shown:
        if not line.strip() or (is_measured and re.search(r"\d", line)):
            continue
        wanted = masked(line)
        expect(wanted in have, f"{page}: `{command}` does not print '{line}'")
        if wanted in have:
            have = have[have.index(wanted) + 1:]


def check_page(runner, page, text):
    found = list(blocks(text))
    for i, (language, lines) in enumerate(found):
        if language != "sh":
            continue
        commands = [command for command in map(command_of, lines) if command]
        for command in commands:
            runner.check_options(page, command)
            printed = runner.run(page, command)
            follows = text.split("\n".join(lines) + "\n```\n\n", 1)[-1].startswith("```\n")
            if printed is not None and len(commands) == 1 and follows and found[i + 1][0] == "":
                check_output(page, command, found[i + 1][1], printed)
    for command in re.findall(r"`([^`\n]*\btutti [a-z]+ [^`\n]*)`", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)):
        runner.check_options(page, command)


def main():
    source, build, tool, program = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory() as folder:
        runner = Runner(source, build, tool, program, folder)
        for page in pages(source):
            with open(os.path.join(source, page), encoding="utf-8") as file:
                check_page(runner, page, file.read())
    for reason, number in runner.reasons.items():
        print(f"not run: {number} ({reason})")
    print(f"{runner.ran} commands were run")
    expect(runner.ran > 20, "the pages have commands")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
