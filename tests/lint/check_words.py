#!/usr/bin/env python3
"""Checks the words of the repository: each has one row in docs/glossary.md, retired ones do not come back, and sentences in comments
and pages begin with their subject. A Meson test (suite lint) and a command. Knows the text of files only.

usage: check_words.py [--root DIR]
"""

import argparse
import collections
import os
import re
import sys

sys.dont_write_bytecode = True
import check_repository  # noqa: E402

GLOSSARY = "docs/glossary.md"
Word = collections.namedtuple("Word", "pattern instead where but_not", defaults=((), ()))

# Words that the field has other words for, where they are looked for (everywhere if that is empty), and where they mean something else.
RETIRED = {
    "board": Word(r"\b(?:Boards?|boards?|BoardLine|\w+_boards?|boards?_\w+)\b", "control block", but_not=("runtime/base/config", "docs/environment.md")),
    "stamp": Word(r"\b(?:[Ss]tamp(?:s|ed)?|\w+_stamps?|stamps?_\w+)\b", "sequence (of a flag line), first cause (of a failure)"),
    "look": Word(r"\b(?:first|vain|failed) looks?\b|\blooks? in vain\b|\bfirst_look\b|\bvain_looks\b", "poll, first poll, failed polls"),
    "moment before a poll": Word(r"\blets? (?:a moment|[\d.]+ ns) pass\b|\bMoment\b", "back-off"),
    "mapped form": Word(r"\bmapped (?:form|plan|schedule|buffers)\b|\bForm::mapped\b|\bmapped_form\b", "direct form, shared buffers"),
    "persistent call": Word(r"\bPersistent\w*\b|\bpersistent calls?\b|\bLoweredCall\w*\b|\bpersistent_call\w*\b", "cached call (CachedCall)"),
    "Submitter": Word(r"\bSubmitter\b", "Completion"),
    "near and far": Word(r"\b(?:near|far) cores\b|\bcores (?:are )?far apart\b|\bis_(?:near|far)\b", "same-LLC, cross-LLC cores"),
    "publish": Word(r"\b(?:publish|await)\b", "signal, wait", where=("runtime/schedule/", "runtime/algorithms/"), but_not=("runtime/schedule/text", "runtime/schedule/parse_text")),
    "column": Word(r"\b(?:columns?|Columns?)\b(?! \d|s of)|\bcolumns=", "leaders", where=("runtime/algorithms/", "runtime/schedule/hierarchy")),
    "walks, take_turns, only_listens": Word(r"\b(?:walks|take_turns|only_listens)\b", "rotates_offset, alternates_owner, is_receive_only",
                                            where=("runtime/",)),
    "carrier": Word(r"\b\w*[Cc]arriers?\b", "wire driver, device engine, stream owner, leader",
                    but_not=("tools/cli/explain_device.cpp", "tests/cli/tools_test.py")),
    "lane": Word(r"\b(?:Lanes?|lanes?|\w+_lanes?|lanes?_\w+)\b", "progress engine, worker",
                 but_not=("runtime/kernels/", "bench/kernels/", "tests/kernels/", "backends/cuda/", "tests/support/cuda_stand_in/",
                          "bindings/python/native/d", "tests/bindings/python/device_arrays.py")),
    "ticket": Word(r"\b(?:[Tt]ickets?|\w+_tickets?)\b", "request id, sequence"),
    "card": Word(r"\b(?:[Cc]ards?|\w+_cards?)\b", "address, topology summary, NIC", but_not=("tools/cli/info_command.cpp",)),
    "guest, door, uplink": Word(r"\b(?:[Gg]uests?|[Dd]oors?|[Uu]plinks?|\w+_(?:guest|door|uplink)s?|(?:guest|door|uplink)s?_\w+)\b",
                                "child connection, listener, parent connection"),
    "adrift": Word(r"\badrift\b|\blook_around\b|\b[Ff]arewells?\b|\bFrameType::who\b",
                   "orphaned, discover_local_ranks, close handshake, query_missing"),
    "past the caches": Word(r"\bpass(?:es)? (?:the|their) caches?(?: by)?\b|\bpast (?:the|their|its) caches?\b", "non-temporal stores"),
    "take turns on CPUs": Word(r"\branks that take turns\b|\btake turns on (?:their|the) CPUs\b", "oversubscribed ranks"),
}
# A clause that stands for a noun hides the subject: "What passes before the first poll ..." is the back-off.
HIDDEN_SUBJECT = re.compile(r"^(?:What|Who|Whom|Those that|Those who)\b(?![^.]*\?)")

SENTENCE_END = re.compile(r"(?<=[.:!?])\s+(?=[A-Z`\"(*])")
LEFT_OUT = ("tests/lint/", "docs/notebook/", "CHANGELOG.md", "tests/fuzz/corpus/", "docs/data/", "LICENSE", "bench/workloads/")
COMMENT_MARKS = {**check_repository.COMMENT_MARKS, ".cuh": "//", ".c": "//"}


def glossary_rows(text):
    """Yields (line number, term) of every row of the tables; a row may hold several terms, separated by commas."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("|") or re.match(r"\|(?:\s*-+\s*\|)+$", line.replace(" ", "")) or line.startswith("| term"):
            continue
        for term in line.strip("|").split("|")[0].split(","):
            yield number, re.sub(r"\s*\(.*?\)|`", "", term).strip()


def check_glossary(text, contents):
    """Every word has one row, and is used somewhere else. `contents`: the texts of all other files."""
    rows = {}
    for number, term in glossary_rows(text):
        word = term.lower()
        if word in rows:
            yield GLOSSARY, number, f"'{term}' has a row already, in line {rows[word]}; one word, one meaning"
        rows.setdefault(word, number)
        pattern = re.compile(r"\b" + r"\s+(?://\s*)?".join(map(re.escape, word.split())), re.IGNORECASE)
        if not any(pattern.search(content) for content in contents):
            yield GLOSSARY, number, f"'{term}' is used nowhere"


def check_retired(path, text):
    for word in RETIRED.values():
        if (word.where and not path.startswith(word.where)) or path.startswith(tuple(word.but_not)) and word.but_not:
            continue
        pattern = re.compile(word.pattern)
        for number, line in enumerate(text.splitlines(), 1):
            if found := pattern.search(line):
                yield path, number, f"'{found.group(0)}' is retired; say {word.instead}"


def prose(path, text):
    """Yields (line number, text) of every paragraph of a page, or every block of comments."""
    mark = COMMENT_MARKS.get(os.path.splitext(path)[1])
    if mark is None:
        return
    block, start, in_code = [], 1, False
    for number, line in enumerate(text.splitlines() + [""], 1):
        stripped = line.strip()
        if mark == "":
            in_code ^= stripped.startswith("```")
            is_text = bool(stripped) and not in_code and not stripped.startswith(("```", "|", "#", "<")) and not line.startswith("    ")
            words = re.sub(r"^(?:[-*>]|\d+\.)\s+", "", stripped)
            begins = is_text and words != stripped
        else:
            is_text = stripped.startswith(mark) and not stripped.startswith("#!")
            words = stripped.lstrip("/#!< ") if is_text else ""
            begins = is_text and not words
        if block and (not is_text or begins):
            yield start, " ".join(block)
            block = []
        if is_text and words:
            start = start if block else number
            block.append(words)


def sentences(path, text):
    for number, paragraph in prose(path, text):
        for sentence in SENTENCE_END.split(paragraph):
            yield number, sentence


def check_tree(root):
    """Returns ([violation], [line of figures])."""
    violations, lengths = [], collections.defaultdict(list)
    contents, glossary = [], ""
    for path in check_repository.files(root):
        if not path.endswith(check_repository.TEXT_SUFFIXES + (".cu", ".cuh")) or path.startswith(LEFT_OUT):
            continue
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        if path == GLOSSARY:
            glossary = text
            continue
        contents.append(text)
        violations += check_retired(path, text)
        for number, sentence in sentences(path, text):
            lengths["pages" if path.endswith(".md") else "comments"].append(len(sentence.split()))
            if HIDDEN_SUBJECT.match(sentence):
                violations.append((path, number, f"begins with a clause instead of its subject: {sentence[:60]}"))
    violations += check_glossary(glossary, contents)
    figures = [f"{kind}: {len(words)} sentences of {sum(words) / len(words):.1f} words, {sum(n > 25 for n in words)} longer than 25"
               for kind, words in sorted(lengths.items())]
    return violations, figures


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
    violations, figures = check_tree(os.path.abspath(parser.parse_args().root))
    print("\n".join(figures))
    for path, line, message in violations:
        print(f"{path}:{line}: {message}")
    print(f"{len(violations)} violations")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
