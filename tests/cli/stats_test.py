#!/usr/bin/env python3
"""Tests of TUTTI_STATS and TUTTI_METRICS: the table at the end of a job, and the statistics of one that runs.

Usage: stats_test.py TUTTI PROGRAM, where PROGRAM is recorded_program.
"""
import os
import re
import socket
import stat
import tempfile
import time

from doctor_test import Job, RANKS, SECONDS, expect


def rows_of(table):
    """{(collective, size): line}"""
    return {found.groups(): line for line in table.splitlines() if (found := re.search(r"(\w+) +(\d+ [KM]?i?B) ", line))}


def test_table(folder):
    for blocks in ("on", "off"):
        with Job(os.path.join(folder, blocks), "late", TUTTI_STATS="1", TUTTI_CONTROL_BLOCKS=blocks) as job:
            os.makedirs(job.folder, mode=0o700)
            said = job.wait()
            expect(job.process.returncode == 0 and said.count("tutti: calls of 3 of 3 ranks") == 1, "one table", said)
            rows = rows_of(said)
            expect(len(rows) == 2, "a row for each size", said)
            small, large = rows[("allreduce", "4 B")], rows[("allreduce", "4 MiB")]
            expect(str(RANKS * 300) in small and str(RANKS * 300 * 4) in small, "calls and bytes", small)
            # The first of the large calls is nobody's fault.
            last = re.search(r"rank 1 (\d+) of (\d+)", large)
            expect(last and int(last[1]) >= 0.9 * int(last[2]) and int(last[2]) >= 20, "rank 1 came last", large)
            expect(not job.files(), "nothing is left", *job.files())


def test_failed_job(folder):
    with Job(folder, "mismatch", TUTTI_STATS="1") as job:
        said = job.wait()
        expect(job.verdict()["verdict"] == "mismatch", "the records of a failed job stay", said)


def scrape(path):
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(SECONDS)
        client.connect(path)
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        answer = b""
        while part := client.recv(65536):
            answer += part
    return answer.decode()


def test_metrics(folder):
    path = os.path.join(folder, "metrics.sock")
    with Job(folder, "busy", TUTTI_METRICS=path) as job:
        deadline, answer = time.monotonic() + SECONDS, ""
        while answer.count('collective="allreduce",size="4194304"') < RANKS and time.monotonic() < deadline:
            if os.path.exists(path):
                answer = scrape(path)
            time.sleep(0.02)
        expect(stat.S_IMODE(os.stat(path).st_mode) == 0o600, "the socket is the user's alone")
        head, _, body = answer.partition("\r\n\r\n")
        expect(head.startswith("HTTP/1.0 200 OK") and "version=0.0.4" in head, "the head", head)
        for line in body.splitlines():
            expect(re.fullmatch(r'# (HELP|TYPE) .+|tutti_\w+\{(\w+="[^"]*",?)+\} [\d.e+-]+', line), "a line of the format", line)
        for rank in range(RANKS):
            found = re.search(rf'tutti_calls_total{{rank="{rank}",collective="allreduce",size="4",[^}}]*}} (\d+)', body)
            expect(found and int(found[1]) == 300, f"calls of rank {rank}", body)
        # One that says nothing does not stop others for long.
        with socket.socket(socket.AF_UNIX) as silent:
            silent.connect(path)
            expect("tutti_calls_total" in scrape(path), "another client")
        with socket.socket(socket.AF_UNIX) as slow:
            slow.settimeout(SECONDS)
            slow.connect(path)
            try:
                for _ in range(2000):
                    slow.send(b"x")
                    time.sleep(0.02)
                expect(False, "a client that asks byte by byte is cut off")
            except (BrokenPipeError, ConnectionResetError):
                pass
    with Job(folder, "none", TUTTI_METRICS=path) as job:
        said = job.wait()
        expect(job.process.returncode == 0 and not os.path.exists(path), "an old socket is replaced, and removed", said)
    with open(path, "w", encoding="utf-8") as other:
        other.write("precious")
    with Job(folder, "none", TUTTI_METRICS=path) as job:
        said = job.wait()
        expect(job.process.returncode != 0 and "TUTTI_METRICS" in said and "is there already" in said, "a file in the way", said)
        expect(open(path, encoding="utf-8").read() == "precious", "the file stays")


def main():
    with tempfile.TemporaryDirectory() as folder:
        for test in (test_table, test_failed_job, test_metrics):
            base = os.path.join(folder, test.__name__)
            os.mkdir(base)
            test(base)
            print("passed:", test.__name__, flush=True)


main()
