#!/usr/bin/env python3
"""Tests of the shared library as a file: what it exports, its name, and several of it in one process.

Knows the headers' declarations and binutils. Usage: library_test.py exports HEADER LIBRARY ABI
                                                     library_test.py copies PROGRAM LIBRARY VERSION OTHER OTHER_VERSION
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
SECONDS = 60
# Symbols of a public class that a C++ program needs beside the functions.
CLASS_DATA = ("typeinfo for ", "typeinfo name for ", "vtable for ")


def expect(condition, what):
    if not condition:
        print("FAILED: " + what)
        sys.exit(1)


def output_of(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=SECONDS).stdout


def exports(header, library, abi):
    for tool in ("nm", "readelf"):
        if not shutil.which(tool):
            print(f"skipped: {tool} (binutils) is not installed")
            sys.exit(SKIPPED)
    with open(header, encoding="utf-8") as file:
        text = re.sub(r"//[^\n]*", "", file.read())
    declared = set(re.findall(r"\b(tutti_\w+)\(", text))
    expect(len(declared) > 50, "the header declares functions")
    expect(f"#define TUTTI_ABI_VERSION {abi}\n" in text, "TUTTI_ABI_VERSION is the number in the soname")
    expect(f"Library soname: [libtutti.so.{abi}]" in output_of("readelf", "-d", library), "the soname has the ABI version")

    exported = set()
    for line in output_of("nm", "-D", "--defined-only", "--demangle", library).splitlines():
        kind, name = re.match(r"[0-9a-f]+ (\w) (.+)", line).groups()
        if kind == "A":
            expect(name == f"TUTTI_{abi}", f"{name} is the one version there is")
            continue
        expect(name.endswith(f"@@TUTTI_{abi}"), f"{name} has the version TUTTI_{abi}")
        name = name.split("@@")[0]
        expect(kind != "u", f"{name} is unique in the process, so that two copies of the library would share it")
        expect(kind in "TVW", f"{name} is a function, or what a class needs, not of kind {kind}")
        if name.startswith("tutti_"):
            exported.add(name)
            continue
        for prefix in CLASS_DATA:
            name = name[len(prefix):] if name.startswith(prefix) else name
        expect(name.startswith("tutti::"), f"{name} is not ours to export")
        expect("Impl" not in name, f"{name} is the inside of a class")
    expect(exported == declared, f"exported and declared: {sorted(exported ^ declared)} is only one of them")
    print(f"{len(exported)} functions of the C interface")


def run_copies(program, scope, *libraries_and_versions):
    """Runs the program; no library may use a function of ours that another one has."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        environment.update(LD_DEBUG="bindings", LD_DEBUG_OUTPUT=os.path.join(folder, "bindings"))
        done = subprocess.run([program, scope, *libraries_and_versions], env=environment, capture_output=True, text=True,
                              check=False, timeout=SECONDS)
        expect(done.returncode == 0 and done.stdout == "fine\n", f"status {done.returncode}\n{done.stdout}{done.stderr}")
        text = ""
        for name in os.listdir(folder):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text += file.read()
    libraries = {os.path.realpath(path) for path in libraries_and_versions[::2]}
    bindings = 0
    for user, owner, symbol in re.findall(r"binding file (\S+) \[\d+\] to (\S+) \[\d+\]: normal symbol `(\w+)'", text):
        if os.path.realpath(user) not in libraries or not re.match(r"tutti_|_ZT?[ISVNK]*5tutti", symbol):
            continue
        bindings += 1
        expect(user == owner, f"{symbol} of {owner} is used by {user}")
    expect(bindings > 0, "the dynamic linker says what it binds")


def copies(program, library, version, other, other_version):
    with tempfile.TemporaryDirectory() as folder:
        copy = os.path.join(folder, "copy.so")
        shutil.copyfile(library, copy)
        run_copies(program, "local", library, version, other, other_version, copy, version)
    run_copies(program, "global", library, version, other, other_version)


if __name__ == "__main__":
    {"exports": exports, "copies": copies}[sys.argv[1]](*sys.argv[2:])
