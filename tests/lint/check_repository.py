#!/usr/bin/env python3
"""Checks rules of the repository that are neither C++ nor layers: scripts parse, nothing is suppressed, links lead somewhere.
Knows the text of files only.

usage: check_repository.py [--root DIR]
"""

import argparse
import ast
import os
import re
import subprocess
import sys

SKIPPED_FOLDERS = {"__pycache__", "subprojects"}
TEXT_SUFFIXES = (".hpp", ".cpp", ".py", ".sh", ".md", ".build", ".txt", ".in", ".c", ".h", ".csv", ".json")
# Patterns are written in pieces, so that this file does not find itself.
# Folders of the machine that somebody worked on; a repository must not know them.
HOME_PATHS = re.compile(r"(?<![\w./])/(?:work|home|root|Users)/[\w.]")
TODO_WORD = "TO" + "DO"
UNEXPLAINED = re.compile(rf"\b(?:{TODO_WORD}|FIX" + r"ME|XX" + r"X)\b(?!: \w.{15,})")
# What hides findings instead of mending them.
SUPPRESSIONS = [
    (re.compile("no_" + "sanitize"), "switches a sanitizer off"),
    (re.compile(r"suppressions" + "="), "names a suppression file"),
    (re.compile("__(?:tsan|asan|lsan)_default_" + "suppressions"), "suppresses sanitizer reports"),
    (re.compile("NO" + r"LINT(?:NEXTLINE|BEGIN|END)?\b(?!\()"), "names no check; write which one and why"),
    (re.compile(r"#\s*pragma\s+(?:GCC|clang)\s+diagnostic\s+" + "ignored"), "hides a compiler warning"),
]

# Functions and streams that follow the program's locale: under a Turkish one std::toupper('i') is no capital I, and a German one
# writes 1,5. runtime/base/ascii.hpp and fmt have what is wanted instead.
LOCALE_FOLDERS = ("runtime/", "topology/", "transports/", "backends/", "bindings/", "tools/", "bench/harness/")
LOCALE_SUFFIXES = (".c", ".h", ".cpp", ".hpp", ".cu")
LOCALE_CALLS = re.compile(
    r"(?<![\w.>])(?:to(?:upper|lower)|is(?:alpha|alnum|digit|xdigit|space|blank|punct|print|graph|cntrl|upper|lower)"
    r"|strto(?:d|f|ld|l|ll|ul|ull|imax|umax)|sto(?:d|f|ld|i|l|ll|ul|ull)|ato(?:f|i|l|ll)|str(?:n?casecmp|coll|xfrm|ftime)"
    r"|v?[sf]?scanf|setlocale)\s*\("
    r"|\bstd::(?:locale|regex|put_time|get_time|[io]?stringstream)\b"
    r"|\{[^{}]*:[^{}]*L\}"
    r"|printf\(.*%[-+ #0-9.*]*[aefgAEFG]")
FILE_STREAM = re.compile(r"\bstd::i?fstream\s+(\w+)")


def check_locale(path, text):
    if not path.startswith(LOCALE_FOLDERS) or not path.endswith(LOCALE_SUFFIXES):
        return
    streams = "|".join(sorted(set(FILE_STREAM.findall(text))) + [r"std::ifstream\([^;]*\)"])
    reads = re.compile(rf"(?:^|\W)(?:{streams})\s*>>")
    for number, line in enumerate(text.splitlines(), 1):
        code = line.split("//")[0]
        found = LOCALE_CALLS.search(code) or reads.search(code)
        if found:
            yield path, number, f"{found.group(0).strip()} follows the locale; use runtime/base/ascii.hpp, std::from_chars or fmt"


def files(root):
    """Yields repository paths of all files outside build and hidden folders (.ci counts)."""
    for folder, subfolders, names in os.walk(root):
        top = os.path.relpath(folder, root) == "."
        subfolders[:] = sorted(
            d for d in subfolders
            if d not in SKIPPED_FOLDERS and (not d.startswith(".") or d == ".ci") and not (top and d.startswith("build")))
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), root)


def check_script(root, path, text):
    first = text.split("\n", 1)[0]
    if path.endswith(".py") or (first.startswith("#!") and "python" in first):
        try:
            ast.parse(text, path)
        except SyntaxError as error:
            yield path, error.lineno or 1, f"does not parse: {error.msg}"
    elif path.endswith(".sh") or (first.startswith("#!") and "bash" in first):
        result = subprocess.run(["bash", "-n", os.path.join(root, path)], capture_output=True, text=True, check=False)
        if result.returncode != 0:
            yield path, 1, f"does not parse: {result.stderr.strip()}"
        sourced = not first.startswith("#!")
        if not sourced and text.count("\n") > 5 and "set -euo pipefail" not in text:
            yield path, 1, "a script starts with `set -euo pipefail`"
    if first.startswith("#!") and not os.access(os.path.join(root, path), os.X_OK):
        yield path, 1, "has a #! line but is not executable"


def check_text(path, text):
    for number, line in enumerate(text.splitlines(), 1):
        if HOME_PATHS.search(line):
            yield path, number, f"names a path of one machine: {HOME_PATHS.search(line).group(0)}..."
        if UNEXPLAINED.search(line):
            yield path, number, f"a {TODO_WORD} needs a colon and its reason"
        if path.endswith(".md"):
            continue  # a page may talk about what code must not do
        for pattern, reason in SUPPRESSIONS:
            found = pattern.search(line)
            if found:
                yield path, number, f"{found.group(0)} {reason}"


def check_links(root, path, text):
    """Relative links of a Markdown page must lead to something in the tree."""
    in_block = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("```"):
            in_block = not in_block
        if in_block:
            continue
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if re.match(r"[a-z]+:|#", target):
                continue
            if not os.path.exists(os.path.join(root, os.path.dirname(path), target.split("#")[0])):
                yield path, number, f"the link to {target} leads nowhere"


def check_recipes(root):
    """Recipes of packagers have the version of the project and options that it knows."""
    folder = os.path.join("tools", "packaging")
    if not os.path.isdir(os.path.join(root, folder)):
        return
    with open(os.path.join(root, "meson.build"), encoding="utf-8") as file:
        version = re.search(r"version: '([^']+)'", file.read()).group(1)
    with open(os.path.join(root, "meson_options.txt"), encoding="utf-8") as file:
        known = set(re.findall(r"option\('(\w+)'", file.read()))
    places = {"debian/changelog": r"^tutti \(([^)]+)\)", "spack/tutti/package.py": r'version\("([\d.]+)"', "conda/meta.yaml": r'version: "([^"]+)"'}
    for name, pattern in places.items():
        path = os.path.join(folder, name)
        with open(os.path.join(root, path), encoding="utf-8") as file:
            found = re.search(pattern, file.read())
        if not found or found.group(1) != version:
            yield path, 1, f"has version {found and found.group(1)}, the project has {version}"
    for name in ("debian/rules", "spack/tutti/package.py", "conda/meta.yaml"):
        path = os.path.join(folder, name)
        with open(os.path.join(root, path), encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                for option in re.findall(r"-D(\w+)=", line):
                    if option not in known:
                        yield path, number, f"gives Meson -D{option}, which meson_options.txt lacks"


# A test that sleeps for a time is slow on a fast machine and wrong on a slow one. It waits for a condition (the sleep stands in a loop), or says
# on the same line or above why it cannot.
SLEEP = re.compile(r"\b(?:sleep_for|sleep_until|time\.sleep|usleep|nanosleep|(?<!un)sleep)\s*\(")
SHORT_SLEEP = re.compile(r"microseconds\(|\d+us\b|\b[0-5]?ms\b|\(0\.0")
LOOP = re.compile(r"\b(?:while|for)\b")


def check_sleeps(path, text):
    if not path.startswith("tests/") or not path.endswith((".cpp", ".hpp", ".py")) or path.startswith("tests/lint/"):
        return
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        mark = "#" if path.endswith(".py") else "//"
        if not SLEEP.search(line.split(mark)[0]) or SHORT_SLEEP.search(line):
            continue
        around = [line] + [earlier for earlier in lines[max(0, number - 4):number - 1] if LOOP.search(earlier)]
        if any(LOOP.search(part) for part in around) or mark in line or lines[number - 2].strip().startswith(mark):
            continue
        yield path, number, "a test sleeps for a time; wait for a condition, or say why it cannot"


# Files of the repository that comments and pages name. Programs of users and files of other projects are told by their names.
NAMED_FILE = re.compile(r"(?<![\w/.*<>-])(?:[\w-]+/)*[A-Za-z_][\w-]*\.(?:md|cpp|hpp|cu|cuh|py|build)\b")
NAMES_OF_OTHERS = {"train.py", "program.py", "distributed_test.py", "name_test.cpp", "name_fuzz.cpp"}
COMMENT_MARKS = {".md": "", ".hpp": "//", ".cpp": "//", ".h": "//", ".cu": "//", ".py": "#", ".sh": "#", ".build": "#"}


def check_named_files(path, text, paths):
    """Files named in comments and pages must exist: by their end of a path, or by name alone."""
    mark = COMMENT_MARKS.get(os.path.splitext(path)[1])
    if mark is None or path.startswith("tests/lint/"):
        return
    for number, line in enumerate(text.splitlines(), 1):
        _, found, comment = line.partition(mark) if mark else ("", "all", re.sub(r"\]\([^)]*\)", "", line))  # links are checked as such
        for name in NAMED_FILE.findall(comment) if found else ():
            if name.split("/")[-1] not in NAMES_OF_OTHERS and not any(("/" + other).endswith("/" + name) for other in paths):
                yield path, number, f"names {name}, which is no file of the repository"


def check_tree(root):
    """Returns all violations as (path, line, message)."""
    violations = list(check_recipes(root))
    paths = list(files(root))
    for path in paths:
        if re.search(r"suppress|\.supp$", os.path.basename(path)):
            violations.append((path, 1, "looks like a suppression file; mend the finding instead"))
        full = os.path.join(root, path)
        with open(full, "rb") as file:
            start = file.read(2)
        if not (path.endswith(TEXT_SUFFIXES) or start == b"#!") or "/corpus/" in path:
            continue
        with open(full, encoding="utf-8") as file:
            text = file.read()
        violations += check_script(root, path, text)
        violations += check_text(path, text)
        violations += check_locale(path, text)
        violations += check_named_files(path, text, paths)
        violations += check_sleeps(path, text)
        if path.endswith(".md"):
            violations += check_links(root, path, text)
    return violations


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    violations = check_tree(os.path.abspath(parser.parse_args().root))
    for path, line, message in violations:
        print(f"{path}:{line}: {message}")
    print(f"{len(violations)} violations")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
