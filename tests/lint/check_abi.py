#!/usr/bin/env python3
"""Compares the interface of libtutti with the one that is kept in runtime/abi/: what programs were compiled and linked against.
Limits the memory that the library takes of every thread of a program.

Knows the C headers' declarations and binutils, nothing of what they mean; 77 is "skipped".
usage: check_abi.py LISTS LIBRARY HEADER...    UPDATE_ABI=1 writes the lists anew
"""

import difflib
import os
import re
import shutil
import subprocess
import sys

SKIPPED = 77
SECONDS = 60
UPDATE = "UPDATE_ABI=1 meson test -C build abi"
MOST_THREAD_BYTES = 8192


def statements(text):
    """The declarations of a C header, one a line, without comments and white space; enumerators and members have lines of their own."""
    text = re.sub(r"\\\n", " ", re.sub(r"//[^\n]*", "", text))
    macros = re.findall(r"^#define (TUTTI_\w+ [^\n]+)$", text, re.MULTILINE)
    yield from (" ".join(("#define " + macro).split()) for macro in macros if not macro.startswith("TUTTI_AS_INT32"))
    text = re.sub(r"^\s*#[^\n]*$", "", text, flags=re.MULTILINE)
    text = " ".join(re.sub(r'extern "C" \{', "", text).split())
    line, braces, parentheses = "", 0, 0
    for character in text:
        if character == "}" and line.strip():
            yield "  " + line.strip()
            line = ""
        line += character
        braces += (character == "{") - (character == "}")
        parentheses += (character == "(") - (character == ")")
        if parentheses == 0 and (character == "{" or character == ";" or (character == "," and braces > 0)):
            yield ("  " if braces > 0 and character != "{" else "") + line.strip()
            line = ""


def exported_names(library):
    """The C++ names that a program can be linked with."""
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", "--demangle", library], capture_output=True, text=True, check=True, timeout=SECONDS
    )
    for line in listed.stdout.splitlines():
        name = re.match(r"[0-9a-f]+ \w (.+)", line).group(1).split("@@")[0]
        if "::" in name:
            yield name


def is_thread_memory_small(library):
    """Thread-local variables: each thread of a program has them, also one that never calls."""
    listed = subprocess.run(["readelf", "-lW", library], capture_output=True, text=True, check=True, timeout=SECONDS)
    found = re.search(r"^ +TLS( +0x[0-9a-f]+){4} +(0x[0-9a-f]+)", listed.stdout, re.MULTILINE)
    if not found:
        print("readelf shows no thread-local variables, which the library has")
        return False
    size = int(found.group(2), 16)
    print(f"thread-local variables: {size} bytes, at most {MOST_THREAD_BYTES}")
    return size <= MOST_THREAD_BYTES


def differences(kept, found):
    """([what is gone or changed], [what is new])."""
    lines = [line for line in difflib.ndiff(kept, found) if line[:2] in ("- ", "+ ")]
    return [line[2:].strip() for line in lines if line[0] == "-"], [line[2:].strip() for line in lines if line[0] == "+"]


def compare(path, found):
    """Whether the list at this path says the same; prints what does not, and what to do."""
    if os.environ.get("UPDATE_ABI"):
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(found) + "\n")
        return True
    kept = []
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            kept = file.read().splitlines()
    gone, new = differences(kept, found)
    for line in gone:
        print(f"{path}: gone: {line}")
    for line in new:
        print(f"{path}: new: {line}")
    if gone:
        print("Programs that use what is gone do not start any more: keep it, or raise tutti_abi_version (docs/install.md, The ABI).")
    if gone or new:
        print(f"If this is intended: {UPDATE}, and commit the list.")
    return not gone and not new


def main():
    folder, library, *headers = sys.argv[1:]
    if not shutil.which("nm"):
        print("skipped: nm (binutils) is not installed")
        sys.exit(SKIPPED)
    declarations = []
    for header in headers:
        with open(header, encoding="utf-8") as file:
            declarations += statements(file.read())
    lists = {"c_interface.txt": declarations, "cpp_symbols.txt": sorted(set(exported_names(library)))}
    same = [compare(os.path.join(folder, name), found) for name, found in lists.items()]
    print(", ".join(f"{name}: {len(found)} lines" for name, found in lists.items()))
    sys.exit(0 if is_thread_memory_small(library) and all(same) else 1)


if __name__ == "__main__":
    main()
