#!/usr/bin/env python3
"""Prints a header with its plain comments as documentation comments, for Doxygen's INPUT_FILTER.
Knows the repository's way of commenting, and no C++: a comment belongs to the declaration below it, or before it on its line.

usage: as_doc_comments.py HEADER
"""

import re
import sys

TOPIC = re.compile(r"[A-Z][a-z]+: ")  # "Errors: ..." opens a paragraph
TRAILING = re.compile(r"^(?P<code>[^\"]*?[;,{})\w]\s+)// (?P<text>.*)$")


def convert(lines):
    is_first_block = True
    was_comment = was_blank = was_code = False
    for line in lines:
        stripped = line.lstrip()
        indent = line[: len(line) - len(stripped)]
        if stripped.startswith("//") and not stripped.startswith("// --"):
            text = stripped[2:]
            if not was_comment and is_first_block:
                yield r"/// \file"
                yield "///"
            elif text.startswith("   ") and (was_blank or was_code):
                text = "     " + text  # a program, not a paragraph
            elif was_comment and TOPIC.match(text.lstrip()):
                yield f"{indent}///"
            yield f"{indent}///{text}"
            was_code = text.startswith("        ")
            was_comment, was_blank = True, not text.strip()
            continue
        if was_comment:
            is_first_block = False
        was_comment = was_blank = was_code = False
        trailing = TRAILING.match(line)
        yield f"{trailing['code']}///< {trailing['text']}" if trailing else line


def main():
    with open(sys.argv[1], encoding="utf-8") as header:
        print("\n".join(convert(header.read().split("\n"))))


if __name__ == "__main__":
    main()
