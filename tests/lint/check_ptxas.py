#!/usr/bin/env python3
"""Checks what ptxas said of the kernels: each was compiled for each architecture, keeps its values in registers, and
leaves room for enough threads. A Meson test (suite lint); knows the text of `ptxas -v` only.

usage: check_ptxas.py REPORT MOST_REGISTERS
"""

import re
import sys

ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'|Function properties for (\w+)")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
REGISTERS = re.compile(r"Used (\d+) registers")


def check_report(text, most_registers):
    """Returns (number of kernels compiled, [violation])."""
    violations, compiled, name, architecture = [], {}, "?", "?"
    for line in text.splitlines():
        if found := ENTRY.search(line):
            name = found.group(1) or found.group(3)
            architecture = found.group(2) or architecture
            if found.group(2):
                compiled.setdefault(architecture, set()).add(name)
        if (found := SPILLS.search(line)) and any(int(number) for number in found.groups()):
            violations.append(f"{name} for {architecture}: {found.group(0)}")
        if (found := REGISTERS.search(line)) and int(found.group(1)) > most_registers:
            violations.append(f"{name} for {architecture}: {found.group(1)} registers, more than {most_registers}")
    everything = set().union(*compiled.values()) if compiled else set()
    if not everything:
        violations.append("the report names no kernel")
    for architecture, names in sorted(compiled.items()):
        violations += [f"{name} was not compiled for {architecture}" for name in sorted(everything - names)]
    return sum(len(names) for names in compiled.values()), violations


def main():
    with open(sys.argv[1], encoding="utf-8") as file:
        count, violations = check_report(file.read(), int(sys.argv[2]))
    print("\n".join(violations + [f"{count} kernels, {len(violations)} violations"]))
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
