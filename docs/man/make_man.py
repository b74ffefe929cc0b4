#!/usr/bin/env python3
"""Writes a man page from the help text of `tutti` or one of its commands.
Knows only the usual shape of such a text (first paragraph, titled sections, indented options), nothing about any option."""

import argparse
import re
import subprocess
import sys


def escape(text):
    """Protects what roff would interpret: backslashes, hyphens, and dots and quotes that open a line."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text.startswith((".", "'")) else text


def parse(help_text):
    """Splits help into (first paragraph, [(section title, [lines])]). A title starts in column 0 and ends in ':'."""
    summary, sections = [], []
    for line in help_text.rstrip().splitlines():
        title = re.fullmatch(r"(\w[\w ,()/-]*):\s*", line)
        inline = re.fullmatch(r"(Usage):\s+(\S.*)", line)
        if title:
            sections.append((title.group(1), []))
        elif inline:
            sections.append((inline.group(1), ["  " + inline.group(2)]))
        elif sections:
            sections[-1][1].append(line)
        else:
            summary.append(line)
    return "\n".join(summary).strip(), sections


def render_section(lines):
    """Turns indented help lines into roff: an option with its text becomes a tagged paragraph, all else stays as it is."""
    out, verbatim = [], []

    def flush():
        if any(verbatim):
            out.extend([".nf"] + [escape(v) for v in verbatim] + [".fi"])
        verbatim.clear()

    base = min((len(line) - len(line.lstrip()) for line in lines if line.strip()), default=0)
    in_option = False
    for line in lines:
        indent = len(line) - len(line.lstrip())
        text = line.strip()
        option = re.match(r"(-\S.*?|[a-z_]+)(?:\s{2,}(\S.*))?$", text) if indent == base else None
        if not text:
            in_option = False
            verbatim.append("")
        elif option and (text.startswith("-") or option.group(2)):
            flush()
            out += [".TP", ".B " + escape(option.group(1))]
            if option.group(2):
                out.append(escape(option.group(2)))
            in_option = True
        elif in_option and indent > base:
            out.append(escape(text))
        else:
            in_option = False
            verbatim.append(line[base:].rstrip())
    flush()
    return out


def make_page(name, version, help_text):
    """Returns the whole page; `name` is "tutti" or "tutti-bench"."""
    summary, sections = parse(help_text)
    if not summary:
        raise ValueError(f"the help of {name} has no first paragraph that says what it does")
    first_sentence = re.split(r"(?<=[.])\s", summary.replace("\n", " "))[0].rstrip(".")
    prefix = re.match(r"tutti(?: \w+)?: ", first_sentence)
    if prefix:
        first_sentence = first_sentence[prefix.end():]
    out = [f'.TH "{name.upper()}" 1 "" "tutti {version}" "User Commands"',
           ".SH NAME", f"{escape(name)} \\- {escape(first_sentence)}"]
    usage = [(t, b) for t, b in sections if t.lower() == "usage"]
    others = [(t, b) for t, b in sections if t.lower() != "usage"]
    for _, body in usage:
        out += [".SH SYNOPSIS", ".nf"] + [".B " + escape(line.strip()) for line in body if line.strip()] + [".fi"]
    out += [".SH DESCRIPTION"] + [escape(line) if line else ".PP" for line in summary.splitlines()]
    for title, body in others:
        out += [f'.SH "{title.upper()}"'] + render_section(body)
    out += [".SH SEE ALSO", "tutti(1)"]
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--version", required=True)
    parser.add_argument("--output", required=True)
    parser.add_argument("tool")
    parser.add_argument("command", nargs="?")
    options = parser.parse_args()
    call = [options.tool] + ([options.command] if options.command else []) + ["--help"]
    result = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    if result.returncode != 0:
        sys.exit(f"{' '.join(call)} ended with status {result.returncode}")
    name = "tutti" + (f"-{options.command}" if options.command else "")
    with open(options.output, "w", encoding="utf-8") as page:
        page.write(make_page(name, options.version, result.stdout))


if __name__ == "__main__":
    main()
