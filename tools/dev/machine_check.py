"""Parts of the checks that run on another machine: a pack of files, steps that end in time, a report. Knows no measurement."""

import json
import os
import subprocess
import sys
import tarfile
import time

MOST_PACKED_BYTES = 60 << 20
NO_TIME = "no time left"


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def write_pack(program, tree, file):
    """Packs the folder `tree` under its own name. `program`: for the error."""
    with tarfile.open(file, "w:gz") as archive:
        archive.add(tree, arcname=tree.name)
    size = os.path.getsize(file)
    print(f"{file}: {size / 2**20:.1f} MiB")
    if size > MOST_PACKED_BYTES:
        sys.exit(f"{program}: a pack of more than {MOST_PACKED_BYTES >> 20} MiB")


class Run:
    """The steps of one check, each with the time that is left, and what they gave."""

    def __init__(self, out, minutes, environment, folder):
        self.out = out
        self.end = time.monotonic() + 60 * minutes
        self.steps = []
        self.environment = environment
        self.folder = folder

    def seconds_left(self):
        return max(0, self.end - time.monotonic())

    def step(self, name, command, most_seconds=600, extra=None, may_fail=False):
        """Runs a command; its output, which is also kept in a file. One that may fail is skipped then."""
        begin = time.monotonic()
        left = min(most_seconds, self.seconds_left())
        print(f"== {name}", flush=True)
        text, status = "", NO_TIME
        if left > 1:
            try:
                done = subprocess.run(
                    command,
                    cwd=self.folder,
                    env={**self.environment, **(extra or {})},
                    timeout=left,
                    check=False,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    errors="replace",
                )
                text, status = done.stdout, "passed" if done.returncode == 0 else f"exit status {done.returncode}"
            except subprocess.TimeoutExpired as late:
                text, status = (late.stdout or b"").decode(errors="replace"), f"did not end within {left:.0f} s"
            except OSError as error:
                status = str(error)
        if may_fail and status != "passed":
            status = f"skipped: {status}"
        (self.out / f"{name.replace(' ', '-')}.log").write_text(text, encoding="utf-8")
        self.steps.append({"step": name, "status": status, "seconds": round(time.monotonic() - begin, 1)})
        print(f"   {status}, {self.steps[-1]['seconds']} s", flush=True)
        if status != "passed":
            print("\n".join("   | " + line for line in text.splitlines()[-15:]), flush=True)
        return text, status == "passed"

    def failed_steps(self):
        """Not those that were skipped, nor those for which no time was left."""
        return [s["step"] for s in self.steps if s["status"] not in ("passed", NO_TIME) and not s["status"].startswith("skipped")]

    def steps_without_time(self):
        return [s["step"] for s in self.steps if s["status"] == NO_TIME]

    def write_report(self, verdict, rows, table):
        """report.json and report.txt, which is also printed. `table`: of the rows, as text."""
        report = {"verdict": verdict, "steps": self.steps, "rows": rows}
        (self.out / "report.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        steps = "\n".join(f"{s['step']:<28}{s['seconds']:>8} s  {s['status']}" for s in self.steps)
        text = f"{steps}\n\n{table}\n\n{verdict}\n"
        (self.out / "report.txt").write_text(text, encoding="utf-8")
        print(text)


def rows_of(text):
    """The JSON lines among others."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]
