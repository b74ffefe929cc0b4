#!/usr/bin/env python3
"""Checks the sizes that keep the product readable: functions, files and folders; a Meson test (suite lint) and a command.
Knows text only: of C++ it finds functions by their braces, behind blanked comments and strings; of Python by the syntax tree.

A function has at most 60 lines, from its name to its last brace, and at most 15 decisions: if, for, while, case, catch, ?:, && and ||.
A longer one gives its reason in a comment above it or in it: "longer than 60 lines because ...", "more than 15 decisions because ...".
A lambda counts as part of the function around it. No folder holds more than a fifth of the product, and nine of ten files have at most
270 lines.

usage: check_sizes.py [--root DIR] [--list N]     prints the figures and the violations
"""

import argparse
import ast
import collections
import os
import re
import sys

sys.dont_write_bytecode = True
import check_layers  # noqa: E402

MAX_FUNCTION_LINES, MAX_DECISIONS = 60, 15
MAX_FILE_P90 = 270
MAX_FOLDER_SHARE = 0.20

# Installed parts and the program; tests, benchmarks, examples and the repository's own scripts are no product.
PRODUCT = ("runtime/", "transports/", "backends/", "topology/", "bindings/", "tools/cli/")
REASON_OF_LENGTH = re.compile(r"longer than 60 lines because \w", re.IGNORECASE)
REASON_OF_DECISIONS = re.compile(r"more than 15 decisions because \w", re.IGNORECASE)
# && also declares a reference to an rvalue: behind a type or auto, and in front of a name, a comma or a bracket.
RVALUE_REFERENCE = re.compile(r"(?:\bauto|>|::\w+|\b(?:const|[A-Z]\w*|\w+_t|T|F))\s*&&\s*(?=\w*\s*[,):={.>]|\.\.\.)")
DECISION = re.compile(r"\b(?:if|for|while|case|catch)\b|&&|\|\||\?")
PREPROCESSOR = re.compile(r"^[ \t]*#[^\n]*(?:\\\n[^\n]*)*", re.MULTILINE)
CONTROL = re.compile(r"^\s*(?:else\s+)?(?:if|for|while|switch|catch|do|else|try)\b")
TRAILER = r"(?:\s|const\b|noexcept\b(?:\s*\([^()]*\))?|override\b|final\b|mutable\b|&&?|->[^;{}]*|requires\b[^;{}]*|try\b)*"

Function = collections.namedtuple("Function", "path line name lines decisions text")


def without_preprocessor(code):
    """Blanks preprocessor lines; of #if ... #else only the first branch stays, so that braces match."""
    lines, stack = [], []
    for line in code.split("\n"):
        found = re.match(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b", line)
        if found:
            word = found.group(1)
            if word.startswith("if"):
                stack.append(False)
            elif word == "endif" and stack:
                stack.pop()
            elif stack:
                stack[-1] = True
        lines.append("" if any(stack) or found else line)
    return PREPROCESSOR.sub(lambda match: re.sub(r"[^\n]", " ", match.group(0)), "\n".join(lines))


def head_is_function(head):
    """Is the text in front of a brace the head of a function? It has a list of parameters and no sign of something else."""
    head = re.sub(r"\[\[[^\]]*\]\]", "", head).strip()
    if not head or CONTROL.match(head) or "(" not in head:
        return False
    outside = re.sub(r"\([^()]*\)", "()", head)
    while re.search(r"\([^()]+\)", outside):
        outside = re.sub(r"\((?:[^()]|\(\))+\)", "()", outside)
    if re.search(r"\b(?:namespace|enum)\b", outside) or re.search(r"\b(?:class|struct|union)\s+\w+[^()]*$", outside):
        return False
    if re.search(r"(?<![=!<>])=(?!=)", re.sub(r"operator\s*[^\s()]*=", "operator", outside)):
        return False  # an initialiser; a lambda that initialises a variable belongs to what is around it
    return re.search(r"\)" + TRAILER + r"$", outside) is not None or re.search(r"\)\s*:\s*\S", outside) is not None


def matching_brace(code, start):
    depth = 0
    for found in re.finditer(r"[{}]", code[start:]):
        depth += 1 if found.group(0) == "{" else -1
        if depth == 0:
            return start + found.start()
    return len(code) - 1


def functions_of(path, text):
    """Yields every function of a file that stands in no other function."""
    code = without_preprocessor(check_layers.code_only(text))
    lines = text.split("\n")
    position = head_start = 0
    while found := re.compile(r"[{};]").search(code, position):
        at, sign = found.start(), found.group(0)
        position = at + 1
        head = re.sub(r"^\s*(?:public|private|protected)\s*:", "", code[head_start:at])
        if sign == "{" and re.search(r"\)\s*:[^:].*[\w>]\s*$", head, re.DOTALL):
            end = matching_brace(code, at)
            if re.match(r"\s*[,{]", code[end + 1:]):  # of a constructor: a member that is initialised in braces, not the body
                position = end + 1
                continue
        if sign == "{" and head_is_function(head):
            end = matching_brace(code, at)
            body = code[at:end + 1]
            first = at - len(code[head_start:at].lstrip())
            line = code.count("\n", 0, first) + 1
            last = code.count("\n", 0, end) + 1
            name = re.search(r"(operator\s*[^\s(]+|[~\w:]+)\s*\(", head)
            above = line - 1
            while above > 0 and lines[above - 1].lstrip().startswith(("//", "*", "/*")):
                above -= 1
            decisions = len(DECISION.findall(RVALUE_REFERENCE.sub(" ", body)))
            yield Function(path, line, name.group(1) if name else "?", last - line + 1, decisions, "\n".join(lines[above:last]))
            position = head_start = end + 1
        elif sign == "{" and re.search(r"=\s*$|\w\s*$|[,(]\s*$|\)\s*$|\]\s*$|>\s*$", head) and not re.search(
                r"\b(?:namespace|class|struct|union|enum|extern)\b", head):
            position = matching_brace(code, at) + 1  # an initialiser
        else:
            head_start = position


def python_functions_of(path, text):
    """Yields the functions of a Python file that stand in no other function."""
    lines = text.split("\n")

    def visit(node):
        for child in ast.iter_child_nodes(node):
            if not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
                yield from visit(child)
                continue
            decisions = sum(isinstance(part, (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.comprehension))
                            + (len(part.values) - 1 if isinstance(part, ast.BoolOp) else 0) for part in ast.walk(child))
            above = child.lineno - 1
            while above > 0 and lines[above - 1].lstrip().startswith("#"):
                above -= 1
            yield Function(path, child.lineno, child.name, child.end_lineno - child.lineno + 1, decisions,
                           "\n".join(lines[above:child.end_lineno]))

    yield from visit(ast.parse(text, path))


def product_files(root):
    """Yields the repository paths of the product's C++ and Python files."""
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = sorted(d for d in subfolders if not d.startswith((".", "build", "__")))
        for name in sorted(names):
            path = os.path.relpath(os.path.join(folder, name), root)
            if path.startswith(PRODUCT) and name.endswith((".hpp", ".cpp", ".h", ".cu", ".cuh", ".py")):
                yield path


def share_name(path):
    """The folder whose share counts: a layer of the runtime, of the transports or the backends, else the first two folders."""
    return "/".join(path.split("/")[:2]) if path.count("/") > 1 else path.split("/")[0]


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else 0


def check_functions(functions):
    for function in functions:
        if function.lines > MAX_FUNCTION_LINES and not REASON_OF_LENGTH.search(function.text):
            yield function.path, function.line, (f"{function.name} has {function.lines} lines; split it, or say above it why it is longer "
                                                 f"than {MAX_FUNCTION_LINES} lines")
        if function.decisions > MAX_DECISIONS and not REASON_OF_DECISIONS.search(function.text):
            yield function.path, function.line, (f"{function.name} has {function.decisions} decisions; split it, or say above it why it has more "
                                                 f"than {MAX_DECISIONS} decisions")


def check_tree(root):
    """Returns ([violation], [line of figures], [Function])."""
    lines_of, functions = {}, []
    for path in product_files(root):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        lines_of[path] = text.count("\n")
        functions += (python_functions_of if path.endswith(".py") else functions_of)(path, text)
    violations = list(check_functions(functions))
    total = sum(lines_of.values())
    shares = collections.Counter()
    for path, lines in lines_of.items():
        shares[share_name(path)] += lines
    for folder, lines in shares.items():
        if lines > MAX_FOLDER_SHARE * total:
            violations.append((folder, 1, f"{100 * lines / total:.1f} % of the product's lines; at most {100 * MAX_FOLDER_SHARE:.0f} %"))
    p90 = percentile(lines_of.values(), 0.9)
    if p90 > MAX_FILE_P90:
        violations.append((".", 1, f"nine of ten files have at most {p90} lines; the aim is {MAX_FILE_P90}"))
    figures = [f"{total} lines in {len(lines_of)} files; file: median {percentile(lines_of.values(), 0.5)}, p90 {p90}",
               f"{len(functions)} functions; lines: median {percentile([f.lines for f in functions], 0.5)}, "
               f"p95 {percentile([f.lines for f in functions], 0.95)}, longest {max((f.lines for f in functions), default=0)}; "
               f"decisions: p95 {percentile([f.decisions for f in functions], 0.95)}, most {max((f.decisions for f in functions), default=0)}",
               "folders: " + ", ".join(f"{folder} {100 * lines / total:.1f} %" for folder, lines in shares.most_common())]
    return violations, figures, functions


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    parser.add_argument("--list", type=int, default=0, metavar="N")
    options = parser.parse_args()
    violations, figures, functions = check_tree(os.path.abspath(options.root))
    for function in sorted(functions, key=lambda f: -f.lines)[:options.list]:
        print(f"{function.lines:4} lines {function.decisions:3} decisions  {function.path}:{function.line} {function.name}")
    print("\n".join(figures))
    for path, line, message in violations:
        print(f"{path}:{line}: {message}")
    print(f"{len(violations)} violations")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
