#!/usr/bin/env python3
"""Writes the MPI names that the library for XLA does not implement: data with distinct values, functions that fail and say so.

MPItrampoline ends the process if a name is missing. usage: make_mpi_stubs.py NAMES IMPLEMENTATION OUTPUT
"""

import re
import sys

# Constants that XLA compares with numbers of its own; the others need only be distinct.
VALUES = {"SUCCESS": 0, "UNDEFINED": -32766}
HEAD = """// Made by make_mpi_stubs.py.
#include <cstdint>

#include "bindings/jax/mpi_stub.hpp"

#pragma GCC visibility push(default)
extern "C" {
"""


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        names = [name for line in file if not line.startswith("#") for name in line.split()]
    with open(sys.argv[2], encoding="utf-8") as file:
        implemented = set(re.findall(r"\bMPIABI_(\w+)\(", file.read()))
    lines = []
    for number, name in enumerate(names, start=1):
        if re.fullmatch(r"[A-Z0-9_]+", name):
            lines.append(f"extern const std::uintptr_t MPIABI_{name} = static_cast<std::uintptr_t>({VALUES.get(name, number)});")
        elif name not in implemented:
            lines.append(f'int MPIABI_{name}() {{ return tutti::jax::refuse_function("MPI_{name}"); }}')
    with open(sys.argv[3], "w", encoding="utf-8") as file:
        file.write(HEAD + "\n".join(lines) + "\n}\n#pragma GCC visibility pop\n")


if __name__ == "__main__":
    main()
