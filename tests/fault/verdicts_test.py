#!/usr/bin/env python3
"""The verdict about a rank that others miss: its kind, its process and its operations, in the error and in the file of
TUTTI_ERROR_FILE, equal on all survivors. Usage: verdicts_test.py PROGRAM; TUTTI_TRANSPORTS chooses the transports."""

import concurrent.futures
import os
import signal
import sys
import traceback

from fault_job import Failure, Freezer, Ranks

SIZE, VICTIM = 3, 2
SURVIVORS = list(range(SIZE - 1))
# The behaviour of the victim, its verdict, and a part of the reason.
KINDS = {
    "late": ("late", "it is alive and waits in no call"),
    "elsewhere": ("elsewhere", None),
    "stop": ("frozen", "stopped by signal 19 (SIGSTOP)"),
    "frozen": ("frozen", "its cgroup /tutti-verdict-"),
    "kill": ("dead", "killed by signal 9 (SIGKILL)"),
    "abort": ("dead", "killed by signal 6 (SIGABRT)"),
    "exit": ("dead", "exit status 3"),
}


def expect(condition, what):
    if not condition:
        raise Failure(what)


def check_record(record, how, pid, text):
    """The object of a survivor, of which `text` is the error."""
    kind, reason = KINDS[how]
    cause = record["root_cause"]
    expect(cause["verdict"] == kind, f"verdict {cause['verdict']}, expected {kind}")
    expect(cause["world_rank"] == VICTIM and cause["rank"] == 0, "ranks of the world and of the group")
    expect(
        cause["pid"] == pid and cause["host"] and f"(rank {VICTIM} of the world, pid {pid} on {cause['host']})" in text, "process and host"
    )
    expect(reason is None or (reason in cause["reason"] and reason in text), f"reason {cause['reason']}")
    expect(record["peer"] == {"rank": 0, "world_rank": VICTIM} and record["is_consequence"], "peer")
    expect(record["message"] in text and record["group"]["world_ranks"] == [2, 1, 0], "message and group")
    # A death may be heard of before the seventh call.
    last = record["last_call"]
    expect(last["call"] == "allreduce of 1000 i32, sum" and last["sequence"] in ((6, 7) if kind == "dead" else (7,)), "last call")
    expect(cause["last_completed"] == {"sequence": 6, "call": "allreduce of 1000 i32, sum"}, f"last completed {cause['last_completed']}")
    if kind != "dead":
        expect("operation 7" in cause["missed_in"] and "allreduce" in cause["missed_in"], "operation that it is missed in")
    if kind == "elsewhere":
        expect(
            cause["operation"].startswith("broadcast of 4 f32, root 1, operation 1 of the group of world ranks 2, 1, 0"), cause["operation"]
        )
    expect(
        (cause["signal"], cause["exit_status"])
        == {"kill": (9, None), "abort": (6, None), "exit": (None, 3), "stop": (19, None)}.get(how, (None, None)),
        "signal and exit status",
    )


def try_kind(program, how):
    with Ranks(program, how, SIZE, TUTTI_TIMEOUT="2s") as job:
        pid = job.processes[VICTIM].pid
        job.wait_for("ready", range(SIZE))
        os.kill(pid, signal.SIGUSR1)
        if how == "frozen":
            with Freezer(f"tutti-verdict-{os.getpid()}") as freezer:
                freezer.freeze(pid)
                errors = job.wait_for("caught", SURVIVORS)
        else:
            errors = job.wait_for("caught", SURVIVORS)
        try:
            records = [job.error_of(rank) for rank in SURVIVORS]
            expect(None not in records, "a survivor has no error file")
            expect(all(record["root_cause"] == records[0]["root_cause"] for record in records), "causes differ")
            for rank, record in zip(SURVIVORS, records):
                expect(record["world"] == {"rank": rank, "size": SIZE} and record["pid"] == job.processes[rank].pid, "own place")
                check_record(record, how, pid, errors[rank])
            if how == "late":  # it hears of its own failure when it calls again
                os.kill(pid, signal.SIGUSR1)
                job.wait_for("caught peer 0", [VICTIM])
                own = job.error_of(VICTIM)
                expect(own["root_cause"] == records[0]["root_cause"] and not own["is_consequence"], "the culprit's own file")
        except (Failure, KeyError, TypeError) as error:
            raise Failure(f"{how}: {error!r}\n{records}\n{job.text()}") from error
    return f"{how}: {errors[0]}"


def main():
    program = os.path.abspath(sys.argv[1])
    kinds = dict(KINDS)
    if Freezer.why_unavailable():
        print(f"without a frozen cgroup: {Freezer.why_unavailable()}")
        del kinds["frozen"]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(len(kinds)) as pool:  # they wait most of their time
        for task in [pool.submit(try_kind, program, how) for how in kinds]:
            try:
                print(task.result(), flush=True)
            except Failure:
                traceback.print_exc()
                failed += 1
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
