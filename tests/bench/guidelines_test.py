#!/usr/bin/env python3
"""Tests of bench/guidelines.py: what it measures and what it finds broken, with a made-up tool in place of `tutti`.

Knows the options that the script gives the tool; measures nothing. Usage: guidelines_test.py GUIDELINES
"""
import json
import os
import subprocess
import sys
import tempfile
import unittest

# Times that keep every guideline; MISTAKE is a condition, and where it is true the time is SLOWER times as long. BOUND is the roofline's.
TOOL = """#!{python}
import json, sys
words = sys.argv[2:]
collective, ranks, first, last, factor = words[0], *(words[words.index(o) + 1] for o in ("-n", "-b", "-e", "-f"))
ranks, size = int(ranks), int(first)
last = int(last[:-1]) << 10 if last.endswith("k") else int(last)
with open(words[words.index("--json") + 1], "w") as out:
    while size <= last:
        bytes = 0 if collective == "barrier" else size
        us = {slower} if {mistake} else 1
        us *= 2 if "--then" in words else 1
        us *= (1 + size / 1000) * ranks ** 0.5 * (0.9 if collective == "barrier" else 1)
        out.write(json.dumps({{"bytes": bytes, "p50_us": us, **({{"bound_us": {bound}}} if "--roofline" in words else {{}})}}) + "\\n")
        if collective == "barrier":
            break
        size *= int(factor)
"""

guidelines = ""


class GuidelinesTest(unittest.TestCase):
    def run_script(self, *options, mistake="False", slower=10, bound="size"):
        """(exit status, output, rows of --json)"""
        with tempfile.TemporaryDirectory() as folder:
            tool, path = os.path.join(folder, "tool"), os.path.join(folder, "rows.json")
            with open(tool, "w", encoding="utf-8") as file:
                file.write(TOOL.format(python=sys.executable, mistake=mistake, slower=slower, bound=bound))
            os.chmod(tool, 0o755)
            result = subprocess.run([sys.executable, guidelines, tool, "--rounds", "1", "--last", "64k", "--json", path, *options],
                                    capture_output=True, text=True, check=False, timeout=100)
            rows = []
            if os.path.exists(path):
                with open(path, encoding="utf-8") as lines:
                    rows = [json.loads(line) for line in lines]
            return result.returncode, result.stdout, rows

    def broken(self, mistake, ranks, **tool):
        status, text, rows = self.run_script("--ranks", ranks, mistake=mistake, **tool)
        found = {(row["check"], row["ranks"], row["bytes"]) for row in rows if not row["holds"]}
        self.assertEqual(status, 1 if found else 0)
        self.assertEqual(text.count("BROKEN"), sum(not row["holds"] for row in rows))
        return found

    def test_what_holds(self):
        status, text, rows = self.run_script("--ranks", "2..4")
        self.assertEqual(status, 0)
        self.assertEqual(len(text.splitlines()), len(rows) + 1)
        self.assertEqual(text.splitlines()[-1], "0 broken")
        sizes = [4 * 4**i for i in range(8)]
        steps = [(row["ranks"], row["bytes"]) for row in rows if row["check"] == "size step"]
        self.assertEqual(steps, [(ranks, size) for ranks in (2, 3, 4) for size in sizes[1:]])
        # From 2 to 3 ranks there is no bound.
        self.assertEqual([(row["ranks"], row["bytes"]) for row in rows if row["check"] == "rank step"], [(4, size) for size in sizes])
        self.assertEqual(sum(row["check"] == "replacement" for row in rows), 3 * (3 * 4 + 1))

    def test_a_collective_that_could_be_replaced(self):
        found = self.broken("collective == 'allgather' and size == 1024", "2")
        self.assertEqual(found, {("replacement", 2, 1024)})
        self.assertEqual(self.broken("collective == 'barrier'", "4"), {("replacement", 4, 0)})

    def test_a_cliff_between_sizes(self):
        slow = "collective in ('allreduce', 'reduce', 'reduce_scatter') and size > 4096"
        broken = {("size step", 2, 16384)}
        self.assertEqual(self.broken(slow, "2"), broken)
        # Unless the machine has it.
        rises = "size * (12 if size > 4096 else 1)"
        self.assertEqual(self.broken(slow, "2", bound=rises), set())
        self.assertEqual(self.broken(slow, "2", slower=20, bound=rises), broken)
        many = 4 * len(os.sched_getaffinity(0))  # to which the roofline does not apply
        self.assertEqual(self.broken(slow, str(many), bound=rises), {("size step", many, 16384)})

    def test_a_cliff_between_ranks(self):
        self.assertEqual(self.broken("ranks > 4", "4..5"), {("rank step", 5, 4 * 4**i) for i in range(8)})
        self.assertEqual(self.broken("ranks > 2", "2..3"), set())

    def test_wrong_arguments(self):
        for options in (["--ranks", "8..2"], ["--ranks", "two"], ["--ranks", "0..2"], ["--no-such-option"]):
            with self.subTest(options=options):
                self.assertEqual(self.run_script(*options)[0], 2)


if __name__ == "__main__":
    guidelines = sys.argv.pop(1)
    unittest.main()
