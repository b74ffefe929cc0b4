#!/usr/bin/env python3
"""Tests of `tutti doctor`: ranks that hang, differ, or are killed, and what their records tell.

Usage: doctor_test.py TUTTI PROGRAM, where PROGRAM is recorded_program.
"""
import json
import os
import pickle
import signal
import stat
import subprocess
import sys
import tempfile
import time

SECONDS = 60
RANKS = 3
tutti, program = sys.argv[1:3]
BUILD = os.path.dirname(os.path.dirname(os.path.abspath(tutti)))


def expect(condition, what, *shown):
    if condition:
        return
    print("FAILED: " + what, *shown, sep="\n")
    sys.exit(1)


class Job:
    """Ranks that record in a folder of their own; ended, at the latest, with the `with` block."""

    def __init__(self, folder, fault, **environment):
        self.folder = os.path.join(folder, fault)
        kept = {k: v for k, v in os.environ.items() if not k.startswith("TUTTI_")}
        self.environment = {**kept, "TUTTI_TUNING_FILE": "off", "TUTTI_RECORDER": self.folder, **environment}
        # The survivors of a rank find out by themselves.
        self.process = subprocess.Popen([tutti, "run", "-n", str(RANKS), "--min-np", "1", "--grace", "20", program, fault], env=self.environment, stderr=subprocess.PIPE,
                                        text=True, start_new_session=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def wait(self):
        return self.process.communicate(timeout=SECONDS)[1]

    def files(self):
        return sorted(os.listdir(self.folder)) if os.path.isdir(self.folder) else []

    def doctor(self, *words):
        return subprocess.run([tutti, "doctor", *words], capture_output=True, text=True, check=False, timeout=SECONDS, env=self.environment)

    def verdict(self):
        result = self.doctor(self.folder, "--json")
        return json.loads(result.stdout) if result.returncode in (0, 3) else {"verdict": None, "sentence": result.stderr}

    def wait_for(self, kind, text=""):
        """The job hangs with this text in the sentence: nothing but the records tells when."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            verdict = self.verdict()
            if verdict["verdict"] == kind and text in verdict["sentence"]:
                return verdict
            expect(self.process.poll() is None, "the job ended before doctor saw: " + kind, str(verdict))
            time.sleep(0.05)
        expect(False, "doctor must see: " + kind, str(verdict))
        return None


def test_clean_end(folder):
    with Job(folder, "none") as job:
        said = job.wait()
        expect(job.process.returncode == 0, "a clean job", said)
        expect(os.path.isdir(job.folder) and not job.files(), "a clean end leaves no record", *job.files())
        result = job.doctor(job.folder)
        expect(result.returncode == 2 and "no record of a rank" in result.stderr, "nothing to read", result.stderr)


def test_hang(folder):
    with Job(folder, "absent") as job:
        verdict = job.wait_for("absent", "302 of the group of all 3 ranks), which ranks 0, 2 have called")
        expect(verdict["culprits"] == [1], "rank 1 is absent", str(verdict))
        for text in ("rank 1 has not called allreduce of 2 f32, sum (operation 302", "which ranks 0, 2 have called",
                     "the last call of rank 1 was allreduce of 1048576 f32, sum (operation 301), "):
            expect(text in verdict["sentence"], text, str(verdict))
        # "which is complete" if it was the last to end it, when others had called the next one.
        expect("complete" in verdict["sentence"].split("(operation 301)")[1], "the call is complete", str(verdict))
        expect(len(job.files()) == RANKS, "a file for each rank", *job.files())
        for name in job.files():
            mode = stat.S_IMODE(os.stat(os.path.join(job.folder, name)).st_mode)
            expect(mode == 0o600, f"only the user may read {name}", oct(mode))
        expect(stat.S_IMODE(os.stat(job.folder).st_mode) == 0o700, "nor the folder")
        # By the process of a rank, in the folder that the environment names.
        pid = verdict["ranks"][2]["pid"]
        result = job.doctor(str(pid))
        expect(result.returncode == 3 and f"rank 2 (pid {pid} on" in result.stdout, "by pid", result.stdout, result.stderr)
        expect(all(rank["alive"] for rank in verdict["ranks"]), "all run", str(verdict))
        os.killpg(job.process.pid, signal.SIGKILL)
        for rank in verdict["ranks"]:
            os.kill(rank["pid"], signal.SIGKILL)
        job.wait()
        # The records survive all processes.
        after = job.verdict()
        expect(after["verdict"] == "absent" and after["culprits"] == [1], "the same verdict after kill -9", str(after))
        deadline = time.monotonic() + SECONDS
        while any(rank["alive"] for rank in after["ranks"]) and time.monotonic() < deadline:
            after = job.verdict()
        expect(not any(rank["alive"] for rank in after["ranks"]), "none runs", str(after))


def test_mismatch(folder):
    with Job(folder, "mismatch") as job:
        said = job.wait()
        verdict = job.verdict()
        expect(verdict["verdict"] == "mismatch" and verdict["culprits"] == [1], "rank 1 differs", str(verdict), said)
        expect("ranks 0, 2 called allreduce of 2 f32, sum; rank 1 called allreduce of 3 f32, sum" in verdict["sentence"],
               "both calls", str(verdict))
        expect("operation 302 of the group of all 3 ranks" in verdict["sentence"], "the operation", str(verdict))


def test_killed(folder):
    with Job(folder, "killed") as job:
        said = job.wait()
        verdict = job.verdict()
        expect(verdict["culprits"] == [1] and "was killed, or crashed" in verdict["sentence"], "rank 1 was killed", str(verdict), said)


def test_message(folder):
    with Job(folder, "message") as job:
        verdict = job.wait_for("message")
        expect("rank 0 has not completed a receive of 1 f32 from rank 1" in verdict["sentence"].lower(), "the message", str(verdict))


def test_export(folder):
    with Job(folder, "mismatch") as job:
        job.wait()
        dumps = os.path.join(folder, "dumps")
        result = job.doctor(job.folder, "--export-torch", dumps)
        expect(result.returncode == 3, "doctor exports, too", result.stderr)
        for rank in range(RANKS):
            with open(os.path.join(dumps, f"tutti_trace_{rank}"), "rb") as file:
                dump = pickle.load(file)
            expect(dump["pg_config"] == {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1, 2]"}}, "the group", str(dump["pg_config"]))
            entries = dump["entries"]
            expect([e["record_id"] for e in entries] == list(range(302)), "entries in order")
            first, last = entries[0], entries[-1]
            expect(first["profiling_name"] == "gloo:all_reduce" and first["state"] == "completed" and first["input_sizes"] == [[1]]
                   and first["collective_seq_id"] == 1 and first["output_dtypes"] == ["f32"], "the first call", str(first))
            expect(last["state"] == "started" and last["input_sizes"] == [[3 if rank == 1 else 2]], "the last call", str(last))
        # The analyser itself, where there is a torch that has it: 1.13, which Debian has, has none.
        venv = os.path.join(BUILD, "torch-venv", "bin", "python")
        has_venv = os.path.exists(venv)
        analyser = subprocess.run([venv if has_venv else sys.executable, "-c", "from torch.distributed.flight_recorder.fr_trace import main; main()", dumps],
                                  capture_output=True, text=True, check=False, timeout=SECONDS)
        if has_venv or "No module named 'torch" not in analyser.stderr:
            said = analyser.stdout + analyser.stderr
            expect(analyser.returncode == 0 and "Culprit rank 1" in said and "SIZE_OR_SYNTAX_MISMATCH" in said, "torch's analyser", said)


def test_bad_files(folder):
    with Job(folder, "absent") as job:
        job.wait_for("absent", "302 of the group of all 3 ranks), which ranks 0, 2 have called")
        name = os.path.join(job.folder, job.files()[0])
        with open(os.path.join(job.folder, "odd.record"), "wb") as odd, open(name, "rb") as whole:
            odd.write(whole.read(5000))
        with open(os.path.join(job.folder, "empty.record"), "wb"):
            pass
        os.symlink(name, os.path.join(job.folder, "link.record"))
        os.mkfifo(os.path.join(job.folder, "pipe.record"))
        result = job.doctor(job.folder)
        expect(result.returncode == 3 and result.stdout.count("left out:") == 3, "files that are none", result.stdout, result.stderr)


def main():
    with tempfile.TemporaryDirectory() as folder:
        for test in (test_clean_end, test_hang, test_mismatch, test_killed, test_message, test_export, test_bad_files):
            base = os.path.join(folder, test.__name__)
            os.mkdir(base)
            test(base)
            print("passed:", test.__name__, flush=True)


if __name__ == "__main__":
    main()
