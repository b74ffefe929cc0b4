#!/usr/bin/env python3
"""Checks what the layers of tutti may include and name; a Meson test (suite lint) and a command.
Knows folders, include lines and identifiers only: it reads text, not C++.

usage: check_layers.py [--root DIR]                       include directions, purity, vendor symbols, sizes
       check_layers.py --headers [--leave-out PATH] [--within FOLDER] [--root DIR] -- COMPILER FLAG...   compiles every header alone
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys

# -- the rules --------------------------------------------------------------------------------------------

FREE_FOLDERS = ("tests", "bench", "tools", "examples")  # may include anything
SOURCE_FOLDERS = ("runtime", "transports", "backends", "topology", "bindings") + FREE_FOLDERS
GENERATED = {"tutti_config.hpp", "tutti_build_id.hpp"}

# Layer -> patterns of project headers that it may include. "X/*" is the folder itself, "X/**" with what lies below.
# The first matching layer of a file counts. A layer may always include itself, in the sense of its own pattern.
TRANSPORT_FAMILIES = ("transports/memory", "transports/message")
SEAMS = ["transports/transport.hpp", "backends/backend.hpp"]
FLOOR = ["runtime/base/**"]
NETWORK = FLOOR + ["runtime/net/**"]
JOB_HEADERS = ["tutti/**"] + NETWORK + ["runtime/job/**"] + sorted(GENERATED)
GROUP_HEADERS = ["tutti/**", "runtime/base/**", "runtime/net/**", "runtime/kernels/**", "runtime/schedule/**", "runtime/selection/**",
                 "runtime/record/**", "runtime/scheduler/**", "runtime/job/**", "runtime/group/**", "runtime/algorithms/catalog.hpp", "topology/topology.hpp",
                 "topology/binding.hpp", "topology/progress_cpus.hpp", "transports/*", "backends/*", "backends/native/native_backend.hpp"]
ALLOWED = [
    ("runtime/include/**", ["tutti/**"]),
    ("runtime/base/**", ["tutti/**"] + sorted(GENERATED)),
    ("runtime/net/**", ["tutti/**"] + FLOOR),
    ("runtime/kernels/**", ["tutti/**"] + FLOOR),
    ("runtime/schedule/**", FLOOR),
    ("runtime/algorithms/**", FLOOR + ["runtime/schedule/**", "topology/topology.hpp"]),
    ("runtime/selection/**", FLOOR + ["runtime/schedule/**", "runtime/algorithms/catalog.hpp"]),
    # Words in a mapped file: it knows calls as numbers only.
    ("runtime/record/**", FLOOR),
    ("runtime/scheduler/**", FLOOR + ["runtime/record/**", "runtime/kernels/**", "runtime/schedule/**", "transports/transport.hpp"]),
    # From a launcher's variables to processes that know each other, before any transport or group exists.
    ("runtime/job/launchers/**", NETWORK + ["runtime/job/launchers/**"] + sorted(GENERATED)),
    ("runtime/job/**", JOB_HEADERS),
    # A group puts the parts together: it owns the engine that drives them, makes the native backend (which alone takes
    # that engine), and asks the registries for the rest. Of the algorithms it sees the catalogue only.
    # Where the topology comes from is asked by the one file that reads the settings; one binds.
    ("runtime/group/settings.cpp", GROUP_HEADERS + ["topology/discovery.hpp"]),
    ("runtime/group/pinning.cpp", GROUP_HEADERS + ["topology/affinity.hpp"]),
    ("runtime/group/**", GROUP_HEADERS),
    # Above groups, of which it uses the public interface; one file makes Works as groups do.
    ("runtime/training/tensor_queue.cpp", ["tutti/**", "runtime/base/**", "runtime/training/**", "runtime/group/**",
                                            "backends/registry.hpp"]),
    ("runtime/training/**", ["tutti/**", "runtime/base/**", "runtime/kernels/**", "runtime/job/exchange.hpp", "runtime/training/**",
                             "runtime/group/tensor_settings.hpp", "runtime/group/work_access.hpp"]),
    ("topology/**", FLOOR),
    # A registry is the one file that knows every plug-in, and it knows nothing of one but how to make it.
    ("transports/registry.*", FLOOR + ["transports/*", "transports/*/*/plugin.hpp"] + sorted(GENERATED)),
    ("transports/module.*", FLOOR + ["transports/*"] + sorted(GENERATED)),
    ("transports/*", NETWORK),
    # The common parts of a family lie beside its members: of memory, one transport over two kinds of mapping; of message, matching,
    # completing and closing over somebody else's library. A member sees its family, not its neighbours.
    ("transports/memory/*", NETWORK + ["transports/*", "transports/memory/*"]),
    ("transports/message/*", NETWORK + ["transports/*", "transports/message/*"]),
    ("transports/memory/*/**", NETWORK + ["transports/*", "transports/memory/*"]),
    ("transports/message/*/**", NETWORK + ["transports/*", "transports/message/*"]),
    ("backends/registry.*", FLOOR + ["backends/*", "backends/*/plugin.hpp"] + sorted(GENERATED)),
    ("backends/*", FLOOR),
    ("backends/native/**", FLOOR + ["runtime/schedule/**", "runtime/algorithms/**", "runtime/selection/**",
                            "runtime/scheduler/**", "transports/transport.hpp", "backends/*"]),
    # Device memory, events and contexts are CUDA's business, also where NCCL moves the data.
    ("backends/nccl/**", FLOOR + ["runtime/kernels/**", "backends/*", "backends/cuda/**"]),
    # Runs lowered plans on the memory of GPUs.
    ("backends/cuda/**", FLOOR + ["runtime/kernels/**", "runtime/schedule/**", "runtime/scheduler/lowered_plan.hpp", "runtime/selection/**",
                          "runtime/algorithms/catalog.hpp", "backends/*"]),
    ("backends/*/**", FLOOR + ["backends/*"]),
    # The C interface stands on the public C++ interface, and nothing is decided in it.
    ("bindings/c/**", ["tutti/**"] + FLOOR),
    # MLSL's interface stands on the public C++ interface; the program includes MLSL's own headers.
    ("bindings/mlsl/include/**", []),
    ("bindings/mlsl/**", ["tutti/**"]),
    ("bindings/*/**", ["tutti/**"]),
]
# Plug-ins see their seam and the helpers beside it, but not the registry that lists them.
FORBIDDEN = [
    ("transports/*/**", ["transports/registry.hpp"]),
    ("runtime/scheduler/**", ["transports/registry.hpp", "backends/**"]),
    ("backends/*/**", ["backends/registry.hpp"]),
    ("runtime/selection/**", ["runtime/base/config*", "transports/**", "topology/**"]),
    ("runtime/schedule/**", ["runtime/base/config*"]),
    ("runtime/algorithms/**", ["runtime/base/config*"]),
]

# Third-party headers -> where they may appear. Whatever is not listed here and has a directory or ".h" is the system's.
THIRD_PARTY = {
    r"hwy/": ["runtime/kernels/**"],
    r"fmt/": ["**"],
    r"sodium": ["runtime/base/**", "runtime/net/**", "runtime/job/**", "runtime/group/**"],
    r"CLI/": [],
    r"nlohmann/": ["runtime/base/**", "runtime/group/**", "runtime/selection/tuning.cpp"],
    r"catch2/": [],
    r"hwloc": ["topology/hwloc_discovery.*"],
    r"(ucp|uct|ucs)/": ["transports/message/ucx/**"],
    r"rdma/": ["transports/message/ofi/**"],
    r"nccl": ["backends/nccl/**"],
    r"cuda": ["backends/cuda/**", "backends/nccl/**"],
    r"pmix": ["runtime/job/launchers/**"],
    r"httplib": ["runtime/job/launchers/http_module.cpp"],
    r"pybind11/|torch/|Python\.h": ["bindings/**"],
}
# Stand-ins for the libraries of GPUs, and the tests that are linked with them.
CUDA_TESTS = ["tests/support/cuda_stand_in/**", "tests/support/device_*.hpp", "tests/backends/cuda_*",
              "tests/bindings/torch/device_stand_in.cpp", "bench/gpu/**"]
NCCL_TESTS = ["tests/support/nccl_stand_in/**", "tests/backends/nccl_*"]
# Vendor identifiers -> where they may appear; checked in tests, bench and tools as well, outside comments and strings.
VENDOR_SYMBOLS = {
    r"\b(?:ucp|uct|ucs)_\w+": ["transports/message/ucx/**", "tests/fuzz/ucx_headers_fuzz.cpp"],
    r"\bfi_\w+": ["transports/message/ofi/**", "tests/fuzz/ofi_packets_fuzz.cpp"],
    r"\bTF_[A-Z]\w*": ["bindings/tensorflow/**"],
    r"\bhwloc_\w+": ["topology/hwloc_discovery.*"],
    r"\bnccl[A-Z]\w*": ["backends/nccl/**", "bench/peers/**"] + NCCL_TESTS,
    r"\b(?:cu[A-Z]|CU[a-z]|CU_|CUDA_(?:SUCCESS|ERROR_))\w*": ["backends/cuda/**", "backends/nccl/**"] + CUDA_TESTS + NCCL_TESTS,
}

# Layers that are functions of their arguments: no clock, no environment, no thread, no I/O.
ENGINE_CHOICE = ["backends/cuda/engine_choice.*", "backends/cuda/engine_explanation.*", "backends/cuda/engine_prices.*"]
PURE_LAYERS = ["runtime/schedule/**", "runtime/algorithms/**", "runtime/selection/**"] + ENGINE_CHOICE
IMPURE_HEADERS = {"thread", "mutex", "shared_mutex", "condition_variable", "chrono", "ctime", "fstream", "iostream",
                  "filesystem", "random", "future"}
IMPURE_SYMBOLS = r"\b(?:getenv|secure_getenv|setenv|system_clock|steady_clock|clock_gettime|gettimeofday|rand|srand)\b"
INTEGER_LAYERS = ["runtime/selection/**"] + ENGINE_CHOICE  # two ranks must not choose differently because of rounding
FLOAT_SYMBOLS = r"\b(?:float|double)\b|(?<![\w.])\d+\.\d+"

AIM_LINES, MAX_LINES = 250, 500
LONG_FILE_REASON = re.compile(r"longer than 500 lines", re.IGNORECASE)
# Files that have a tighter aim: pattern -> lines.
TIGHTER_AIMS = {"runtime/algorithms/*/**": 200, "transports/transport.hpp": 200, "backends/backend.hpp": 120}
TRANSPORT_METHODS = 14

# -- reading ----------------------------------------------------------------------------------------------


def matches(path, pattern):
    """Does a path match? `*` stays within a folder, `**` does not."""
    regex = re.escape(pattern).replace(r"\*\*", ".+").replace(r"\*", "[^/]+")
    return re.fullmatch(regex, path) is not None


def matches_any(path, patterns):
    return any(matches(path, p) for p in patterns)


def code_only(text):
    """Blanks comments and the contents of string literals, keeping line numbers (raw strings included)."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'', re.DOTALL)

    def blank(match):
        found = match.group(0)
        if found.startswith("'") and match.start() and text[match.start() - 1].isalnum():
            return found  # a digit separator, not a character
        return "".join(c if c == "\n" else " " for c in found)

    return token.sub(blank, text)


def source_files(root):
    """Yields repository paths of C++ files, sorted; build folders and hidden folders are not source."""
    for top in SOURCE_FOLDERS:
        for folder, subfolders, names in os.walk(os.path.join(root, top)):
            subfolders[:] = sorted(d for d in subfolders if not d.startswith((".", "build", "__")))
            for name in sorted(names):
                if name.endswith((".hpp", ".cpp", ".h", ".cc", ".cu", ".cuh")):
                    yield os.path.relpath(os.path.join(folder, name), root)


def includes_of(text):
    """Yields (line number, "quoted" or "angle", header)."""
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r'\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)', line)
        if found:
            yield number, "quoted" if found.group(1) else "angle", found.group(1) or found.group(2)


# -- the checks: each yields (path, line, message) --------------------------------------------------------


def check_includes(root, path, text):
    layer = next((entry for entry in ALLOWED if matches(path, entry[0])), None)
    free = path.startswith(tuple(f + "/" for f in FREE_FOLDERS))
    if layer is None and not free:
        yield path, 1, "lies in no layer that tools/dev/check_layers.py knows"
        return
    forbidden = [p for pattern, headers in FORBIDDEN if matches(path, pattern) for p in headers]
    folder = os.path.dirname(path)
    # A plug-in may include its own folder, whatever lies below it.
    own = [folder + "/**"] if folder.count("/") >= 1 and folder not in TRANSPORT_FAMILIES else []
    if layer:
        own += [layer[0]] if layer[0].startswith("runtime/") or layer[0] == "topology/**" else []
        if layer[0] in ("transports/*", "backends/*"):
            own += [layer[0]]
        if re.match(r"(transports|backends|bindings)/.*/\*\*$", layer[0]):
            own += ["/".join(path.split("/")[: layer[0].count("/")]) + "/**"]
    for line, kind, header in includes_of(text):
        if kind == "angle":
            yield from check_third_party(path, line, header, free)
            continue
        if ".." in header.split("/") or header.startswith("/"):
            yield path, line, f'"{header}": write includes from the root of the repository'
            continue
        in_tree = os.path.exists(os.path.join(root, header)) or header in GENERATED
        public = os.path.exists(os.path.join(root, "runtime/include", header))
        if not in_tree and not public:
            yield path, line, f'"{header}" does not exist (includes start at the root of the repository)'
        elif not free:
            if matches_any(header, forbidden) or not (matches_any(header, layer[1]) or matches_any(header, own)):
                yield path, line, f'"{header}" may not be included by {layer[0]} (allowed: {", ".join(layer[1])})'


def check_third_party(path, line, header, free):
    for pattern, allowed in THIRD_PARTY.items():
        if re.match(pattern, header):
            if not free and not matches_any(path, allowed) and "**" not in allowed:
                yield path, line, f"<{header}> may only be included by {', '.join(allowed) or 'tests, bench and tools'}"
            return
    if matches_any(path, PURE_LAYERS):
        if header in IMPURE_HEADERS or header.endswith(".h"):
            yield path, line, f"<{header}> has no place in a pure layer"


def check_symbols(path, code):
    rules = [(pattern, allowed, "belongs to " + ", ".join(allowed)) for pattern, allowed in VENDOR_SYMBOLS.items()]
    if matches_any(path, PURE_LAYERS):
        rules.append((IMPURE_SYMBOLS, [], "has no place in a pure layer"))
    if matches_any(path, INTEGER_LAYERS):
        rules.append((FLOAT_SYMBOLS, [], "is floating point; selection is integer arithmetic"))
    for number, line in enumerate(code.splitlines(), 1):
        if re.match(r"\s*#\s*include", line):
            continue
        for pattern, allowed, reason in rules:
            found = re.search(pattern, line)
            if found and not matches_any(path, allowed):
                yield path, number, f"{found.group(0)} {reason}"


def check_form(path, text):
    lines = text.splitlines()
    if not lines or not lines[0].startswith(("//", "/*")):
        yield path, 1, "the file does not open with a sentence that says what it is for"
    # Highway compiles some headers once per instruction set; those toggle a macro instead. Precompiled headers have a guard, because
    # g++ warns of the pragma in what it compiles as a main file.
    has_own_guard = "HWY_TARGET_TOGGLE" in text or "/precompiled/" in path
    if path.endswith((".hpp", ".cuh")) and "#pragma once" not in lines and not has_own_guard:
        yield path, 1, "the header has no #pragma once"
    header = []
    for line in lines:
        if line and not line.startswith(("//", "#", " *", "/*")):
            break
        header.append(line)
    if len(lines) > MAX_LINES and not LONG_FILE_REASON.search("\n".join(header)):
        yield path, len(lines), f"{len(lines)} lines; split it, or say in its header comment why it is longer than 500 lines"


def check_seam_size(path, code):
    if path == "transports/transport.hpp":
        classes = re.findall(r"\bclass (?:Transport|Endpoint)\b[^;{]*\{(.*?)\n\};", code, re.DOTALL)
        methods = sum(len(re.findall(r"\bvirtual\b[^;{}]*=\s*0\s*;", body)) for body in classes)
        if methods > TRANSPORT_METHODS:
            yield path, 1, f"{methods} methods; the transport seam has at most {TRANSPORT_METHODS}"


def check_tree(root):
    """Runs every textual check; returns (violations, [(lines, aim, path)] of files over their aim)."""
    violations, long_files = [], []
    for path in source_files(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        code = code_only(text)
        violations += check_includes(root, path, text)
        violations += check_symbols(path, code)
        violations += check_form(path, text)
        violations += check_seam_size(path, code)
        line_count = text.count("\n")
        aim = min([AIM_LINES] + [a for pattern, a in TIGHTER_AIMS.items() if matches(path, pattern)])
        if line_count > aim:
            long_files.append((line_count, aim, path))
    return violations, sorted(long_files, reverse=True)


def compile_header(root, compiler, folder, path):
    """A .h is for C and for C++ of any age. Makes an object file, which ccache keeps: it does not for -fsyntax-only."""
    include = path[len("runtime/include/"):] if path.startswith("runtime/include/") else path
    languages = [["-x", "c++"]]
    if path.endswith(".h"):
        compiler = [flag for flag in compiler if not flag.startswith("-std=")] + ["-pedantic"]
        languages = [["-x", "c", "-std=c11"], ["-x", "c++", "-std=c++11"]]
    source = os.path.join(folder, path.replace("/", "_") + ".cpp")
    with open(os.path.join(root, source), "w", encoding="utf-8") as file:
        file.write(f'#include "{include}"\n')
    for language in languages:
        result = subprocess.run(compiler + language + ["-c", source, "-o", source + ".o"], text=True, capture_output=True, cwd=root, check=False)
        if result.returncode != 0:
            break
    return path, result.returncode, result.stderr


def check_headers(root, compiler, folder, left_out=(), within=("",)):
    """Compiles every header alone, several at a time, in `folder`; returns the number of headers and the failures' texts."""
    folder = os.path.relpath(folder, root)
    os.makedirs(os.path.join(root, folder), exist_ok=True)
    # Relative, so that it makes no difference to ccache where the repository lies.
    compiler = ["-I" + os.path.relpath(flag[2:], root) if flag.startswith("-I" + root) else flag for flag in compiler]
    headers = [p for p in source_files(root) if p.endswith(".hpp") or (p.endswith(".h") and p.startswith("runtime/"))]
    headers = [p for p in headers if p.startswith(tuple(within)) and not (p + "/").startswith(tuple(f + "/" for f in left_out))]
    failures = []
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        for path, status, text in pool.map(lambda p: compile_header(root, compiler, folder, p), headers):
            if status != 0:
                failures.append(f"{path} does not compile alone:\n{text}")
    return len(headers), failures


def main():
    arguments = sys.argv[1:]
    compiler = []
    if "--" in arguments:
        split = arguments.index("--")
        arguments, compiler = arguments[:split], arguments[split + 1:]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    parser.add_argument("--headers", action="store_true", help="compile every header alone; after --: compiler and flags")
    parser.add_argument("--in", dest="folder", default="build/headers", help="where the files for --headers are made")
    parser.add_argument("--leave-out", action="append", default=[], help="a folder or file whose headers need what is not installed")
    parser.add_argument("--within", default="", help="only the headers of this folder")
    options = parser.parse_args(arguments)
    root = os.path.abspath(options.root)
    if options.headers:
        compiler = compiler or ["c++", "-std=c++20", "-I", ".", "-I", "runtime/include"]
        count, failures = check_headers(root, compiler, options.folder, options.leave_out, [options.within])
        print("\n".join(failures + [f"{count} headers, {len(failures)} do not compile alone"]))
        sys.exit(1 if failures else 0)
    violations, long_files = check_tree(root)
    for line_count, aim, path in long_files:
        print(f"note: {path} has {line_count} lines, the aim is {aim}")
    for path, line, message in violations:
        print(f"{path}:{line}: {message}")
    print(f"{len(violations)} violations")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
