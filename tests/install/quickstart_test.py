#!/usr/bin/env python3
"""Tests of tools/quickstart where it builds nothing: with a build or a wheel at hand, and where something is missing.

Knows the script as a visitor does. The programs that it calls are stand-ins, so nothing is installed or compiled.
Usage: quickstart_test.py REPOSITORY
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
import zipfile

PROGRAMS = "bash basename dirname env find grep head mkdir nproc python3 rm chmod sed sort tail uname cat touch".split()
TOOL = '#!/bin/bash\nif [ "$1" = --version ]; then echo "tutti 0.1.0"; else echo "ran: $*"; fi\n'


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


def expect(result, status, *said):
    output = result.stdout + result.stderr
    for text in said:
        if result.returncode != status or text not in output:
            print(f"FAILED: expected status {status} and '{text}', got {result.returncode}:\n{output}")
            sys.exit(1)


class Visit:
    """A clone with nothing but the script, on a machine of a user who may not install."""

    def __init__(self, repository, folder):
        self.clone, self.programs = os.path.join(folder, "clone"), os.path.join(folder, "bin")
        for name in ("tools/quickstart", "tools/dev/common.sh"):
            os.makedirs(os.path.dirname(os.path.join(self.clone, name)), exist_ok=True)
            shutil.copy(os.path.join(repository, name), os.path.join(self.clone, name))
        os.makedirs(self.programs)
        for name in PROGRAMS:
            os.symlink(shutil.which(name), os.path.join(self.programs, name))
        self.program("id", "echo 1000")
        self.program("apt-get", "echo apt-get must not run; exit 1")
        self.installed("")

    def program(self, name, body):
        write(os.path.join(self.programs, name), f"#!/bin/bash\n{body}\n")

    def installed(self, *packages):
        """Of Debian's packages these."""
        self.program("dpkg-query", f'case " {" ".join(packages)} " in *" ${{@: -1}} "*) echo installed ;; esac')

    def run(self, *words):
        return subprocess.run(
            ["bash", os.path.join(self.clone, "tools", "quickstart"), *words],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            env={"PATH": self.programs, "HOME": "/nonexistent"},
        )

    def path(self, name):
        return os.path.join(self.clone, name)


def main():
    with tempfile.TemporaryDirectory() as folder:
        visit = Visit(sys.argv[1], folder)
        # Neither root nor compiler: what to type, and the way without root.
        expect(visit.run(), 1, "g++ meson ninja-build", "sudo apt-get install", "without root", "build/dist/")
        # Only optional packages are missing, and tools come from elsewhere: it goes on, and shows why configuring fails.
        visit.installed("libhwy-dev", "libfmt-dev", "nlohmann-json3-dev", "libsodium-dev", "libcli11-dev")
        for name in ("g++", "pkg-config", "ninja"):
            visit.program(name, "exit 1")
        visit.program("meson", "echo meson has its reasons; exit 1")
        expect(visit.run(), 1, "going on without libhwloc-dev", "2 of 4", "meson has its reasons", "rm -rf build")
        # A wheel needs none of that.
        with zipfile.ZipFile(visit.path("build/wheel"), "w") as wheel:
            wheel.writestr("tutti/bin/tutti", TOOL)
        os.makedirs(visit.path("build/dist"))
        os.rename(visit.path("build/wheel"), visit.path(f"build/dist/tutti-0.1.0-cp311-cp311-manylinux_2_35_{platform.machine()}.whl"))
        expect(visit.run("-n", "2"), 0, "manylinux", "ran: bench allreduce -n 2\n")
        # A build comes first: brought up to date, or as it is where there is no ninja.
        write(visit.path("build/tools/tutti"), TOOL)
        write(visit.path("build/build.ninja"), "")
        expect(visit.run(), 1, "up to date failed", "rm -rf build")
        visit.program("ninja", 'echo "ninja: $*"')
        expect(visit.run("--check"), 0, "ninja: -C build quickstart\n", "of build/", "ran: bench allreduce --check\n")
        os.remove(os.path.join(visit.programs, "ninja"))
        expect(visit.run(), 0, "there is no ninja", "ran: bench allreduce\n")
        # --build compiles in any case.
        expect(visit.run("--build"), 1, "ninja-build")
    print("passed")


if __name__ == "__main__":
    main()
