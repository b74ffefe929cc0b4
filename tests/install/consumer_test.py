#!/usr/bin/env python3
"""Installs tutti somewhere, builds the projects of examples/consumer against that and runs them as jobs.

Knows the build folder it installs from and what its users' build systems are told; 77 is "skipped".
Usage: consumer_test.py make|cmake|meson|mlsl SOURCE_FOLDER BUILD_FOLDER [TRANSPORT of a module]...
       consumer_test.py pages SOURCE_FOLDER
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
SECONDS = 120
LAUNCHERS = re.compile(r"^(TUTTI_|LD_LIBRARY_PATH$|RANK$|WORLD_SIZE$|LOCAL_|CMAKE_|PKG_CONFIG)")
C_SAYS = "2 ranks: average 0.5, worst 1"
CPP_SAYS = "average over 2 ranks: 0.5"


def expect(condition, what):
    if not condition:
        print("FAILED: " + what)
        sys.exit(1)


def need(*tools):
    for tool in tools:
        if not shutil.which(tool):
            print(f"skipped: {tool} is not installed")
            sys.exit(SKIPPED)


class Installed:
    """A copy of the installation where nobody has configured it to be, and what builds and runs against it."""

    def __init__(self, source, build, folder):
        self.consumer = os.path.join(source, "examples", "consumer")
        self.stage, self.work = os.path.join(folder, "stage"), os.path.join(folder, "work")
        self.environment = {k: v for k, v in os.environ.items() if not LAUNCHERS.match(k)}
        self.run("meson", "install", "-C", build, "--no-rebuild", "--quiet", "--tags", "runtime,devel,bin", DESTDIR=self.stage)
        self.tool = self.find("bin/tutti")
        self.environment["PKG_CONFIG_PATH"] = os.path.dirname(self.find("tutti.pc"))
        self.environment["PKG_CONFIG_SYSROOT_DIR"] = self.stage
        self.environment["CMAKE_PREFIX_PATH"] = os.path.dirname(os.path.dirname(self.tool))

    def find(self, name):
        # Links are not followed: lib/process of MLSL leads to its own folder.
        paths = (os.path.join(folder, entry) for folder, folders, files in os.walk(self.stage) for entry in folders + files)
        found = [path for path in paths if path.endswith("/" + name)]
        expect(len(found) == 1, f"{name} is installed once: {found}")
        return found[0]

    def run(self, *command, **environment):
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=SECONDS,
                              stdin=subprocess.DEVNULL, env={**self.environment, **environment})
        expect(done.returncode == 0, f"{shlex.join(command)}: status {done.returncode}\n{done.stdout}")
        return done.stdout

    def check_program(self, path, says, **environment):
        output = self.run(self.tool, "run", "-n", "2", path, **environment)
        expect(says in output, f"{path} says '{says}':\n{output}")

    def check_programs(self, folder):
        for program, says in (("program_c", C_SAYS), ("program_cpp", CPP_SAYS)):
            path = os.path.join(folder, program)
            self.check_program(path, says)
            loaded = re.search(r"libtutti\.so\S* => (\S+)", self.run("ldd", path))
            expect(loaded and loaded.group(1).startswith(self.stage), f"{program} takes the installed library: {loaded}")


def check_older_cpp(installed):
    """A C++17 program has the C interface; including the C++ one says so."""
    flags = shlex.split(installed.run("pkg-config", "--cflags", "--libs", "tutti"))
    program = os.path.join(installed.work, "program_cpp17")
    compiler = ["c++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-pedantic", "-x", "c++"]
    installed.run(*compiler, os.path.join(installed.consumer, "program.c"), "-o", program, *flags)
    installed.check_program(program, C_SAYS, LD_LIBRARY_PATH=os.path.dirname(installed.find("libtutti.so.0")))
    done = subprocess.run([*compiler, "-fsyntax-only", "-", *flags], input="#include <tutti/tutti.hpp>\n", env=installed.environment,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=SECONDS)
    expect(done.returncode != 0 and "needs C++20 (std::span)" in done.stdout, f"C++17 is told about tutti.hpp:\n{done.stdout}")


def test_make(installed, modules):
    """Also, that an installed library finds its modules, from where it lies."""
    need("make", "pkg-config")
    flags = "-Wall -Wextra -Werror -pedantic"
    self_built = os.path.join(installed.work, "make")
    installed.run("make", "-C", installed.consumer, "BUILD=" + self_built, CFLAGS=flags, CXXFLAGS=flags)
    installed.check_programs(self_built)
    for name in modules:
        installed.check_program(os.path.join(self_built, "program_c"), C_SAYS, TUTTI_TRANSPORTS=name)
    check_older_cpp(installed)


def check_versions(installed, folder):
    """Which versions the package of CMake admits to be."""
    with open(installed.find("tutti.pc"), encoding="utf-8") as file:
        version = re.search(r"Version: (\S+)", file.read()).group(1)
    major, minor, patch = map(int, version.split("."))
    wanted = {"": True, version: True, f"{major}.{minor}": True, f"{major}.{minor}.{patch + 1}": False,
              f"{major}.{minor + 1}": False, f"{major + 1}": False, f"{version} EXACT": True, f"{major}.{minor}9": False}
    os.makedirs(folder)
    with open(os.path.join(folder, "CMakeLists.txt"), "w", encoding="utf-8") as file:
        file.write("cmake_minimum_required(VERSION 3.13)\nproject(versions NONE)\n")
        for asked in wanted:
            file.write(f'find_package(tutti {asked} QUIET)\nmessage(STATUS "[{asked}] ${{tutti_FOUND}}")\nunset(tutti_DIR CACHE)\n')
    library = installed.find("cmake/tutti")  # without a language, CMake does not know the folders of this architecture
    output = installed.run("cmake", "-S", folder, "-B", os.path.join(folder, "build"), "-G", "Unix Makefiles", "-DCMAKE_PREFIX_PATH=" + library)
    for asked, is_right in wanted.items():
        expect(f"[{asked}] {1 if is_right else 0}\n" in output, f"version '{asked}' is {'' if is_right else 'not '}found:\n{output}")


def test_cmake(installed, _):
    need("cmake", "make")
    installed.run("cmake", "-S", installed.consumer, "-B", installed.work, "-G", "Unix Makefiles")
    installed.run("cmake", "--build", installed.work)
    installed.check_programs(installed.work)
    check_versions(installed, os.path.join(installed.work, "versions"))


def test_meson(installed, _):
    need("meson", "ninja", "pkg-config")
    installed.run("meson", "setup", installed.work, installed.consumer)
    installed.run("ninja", "-C", installed.work)
    installed.check_programs(installed.work)


MLSL_PROGRAM = r"""
#include <mlsl.hpp>
#include <cstdio>
int main(int argc, char** argv) {
  MLSL::Environment& env = MLSL::Environment::GetEnv();
  env.Init(&argc, &argv);
  if (env.GetProcessIdx() == 0) std::printf("%zu processes\n", env.GetProcessCount());
  env.Finalize();
}
"""


def test_mlsl(installed, _):
    """MLSL's own folders: a program is built by pkg-config and finds the library after mlslvars.sh."""
    need("c++", "pkg-config", "bash")
    os.makedirs(installed.work)
    source, program = os.path.join(installed.work, "program.cpp"), os.path.join(installed.work, "program")
    with open(source, "w", encoding="utf-8") as file:
        file.write(MLSL_PROGRAM)
    installed.environment["PKG_CONFIG_PATH"] = os.path.dirname(installed.find("mlsl.pc"))
    flags = shlex.split(installed.run("pkg-config", "--cflags", "--libs", "mlsl"))
    # libtutti lies where libmlsl says; the linker does not follow that in a staged copy.
    installed.run("c++", source, "-o", program, *flags, "-Wl,--allow-shlib-undefined")
    folder = os.path.join(os.path.dirname(installed.find("libmlsl.so")), "process")
    by_mode = program + "_by_mode"
    include = "-I" + os.path.join(os.path.dirname(os.path.dirname(folder)), "include")
    installed.run("c++", source, "-o", by_mode, include, "-L" + folder, "-Wl,-rpath," + folder, "-lmlsl", "-Wl,--allow-shlib-undefined")
    output = installed.run(installed.tool, "run", "-n", "1", by_mode)
    expect("1 processes" in output, f"a program that is linked through lib/process: {output}")
    script = f"source {installed.find('mlslvars.sh')} && echo root $MLSL_ROOT && exec {installed.tool} run -n 2 {program}"
    output = installed.run("bash", "-c", script)
    root = os.path.dirname(os.path.dirname(installed.tool))
    expect("2 processes" in output and f"root {os.path.realpath(root)}" in output, f"mlslvars.sh and a program of 2 ranks: {output}")
    loaded = installed.run("bash", "-c", f"source {installed.find('mlslvars.sh')} && ldd {program} && python3 -c 'import mlsl; mlsl.MLSL()'")
    for library in ("libmlsl", "libtutti"):
        expect(f"=> {installed.stage}" in next(line for line in loaded.splitlines() if library in line), f"{library}: {loaded}")


def check_pages(source):
    """The programs on the pages are those that are built here."""
    for page, language, program in (("docs/c_api.md", "c", "program.c"), ("README.md", "cpp", "program.cpp")):
        with open(os.path.join(source, page), encoding="utf-8") as file:
            shown = re.search(rf"```{language}\n(#include.*?)```", file.read(), re.DOTALL).group(1)
        with open(os.path.join(source, "examples", "consumer", program), encoding="utf-8") as file:
            built = re.sub(r"\A//[^\n]*\n", "", file.read())
        expect(shown == built, f"{page} shows examples/consumer/{program}")


def main():
    part, source, *rest = sys.argv[1:]
    if part == "pages":
        check_pages(source)
        return
    build, *modules = rest
    with tempfile.TemporaryDirectory() as folder:
        globals()["test_" + part](Installed(source, build, folder), modules)


if __name__ == "__main__":
    main()
