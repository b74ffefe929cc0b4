#!/usr/bin/env python3
"""`tutti bench --device cuda` on the stand-ins for CUDA's driver and NCCL: every collective, engine and error, as table and JSON.

usage: bench_gpu_test.py TUTTI [CUDA_STAND_IN [NCCL_STAND_IN]]     without stand-ins: a build without CUDA says how to get one
"""
import math
import os
import sys
import tempfile

import tools_test
from tools_test import COLLECTIVES, FIELDS, QUICK, expect, expect_usage_error, rows_of, run

BENCH = ["--device", "cuda", "-n", 2, "--check", *QUICK]
SIZES = ["-b", 4, "-e", "64k", "-f", 128]


def table_of(result):
    """The rows as nccl-tests writes them: whatever is not behind a '#'."""
    return [line.split() for line in result.stdout.splitlines() if not line.startswith("#")]


def measured(path, *words, **environment):
    """Rows of the table, and of the JSON file by (bytes, in place)."""
    result = run("bench", *words, "--json", path, **environment)
    expect(result.returncode == 0, f"bench {words}", result)
    rows = rows_of(path)
    for row in rows:
        expect(list(row) == FIELDS + ["root", "device", "gpu"], f"fields are {list(row)}", result)
        expect(row["wrong"] == 0 and row["device"] == "cuda" and row["backend"] == "cuda", f"row {row}", result)
        expect(0 < row["min_us"] <= row["p50_us"] and row["iterations"] == 3, f"row {row}", result)
    return table_of(result), {(row["bytes"], row["in_place"]): row for row in rows}


def test_collectives(path, **cuda):
    """Both forms of each call, in one row of the table and two lines of JSON."""
    for collective in COLLECTIVES:
        if collective == "barrier":
            continue
        table, rows = measured(path, collective, *BENCH, *SIZES, "--root", 1, **cuda)
        forms = [True] if collective == "broadcast" else [False, True]
        blocks = 2 if collective in ("allgather", "reduce_scatter", "alltoall", "gather", "scatter") else 1
        is_rooted = collective in ("broadcast", "reduce", "gather", "scatter")
        expect(len(table) == 3 and len(rows) == 3 * len(forms), f"{collective}: {table} {rows}")
        for columns in table:
            size = int(columns[0])
            expect(len(columns) == 14, f"{collective}: columns {columns}")
            expect(columns[2:5] == ["f32", "sum" if "reduce" in collective or "scan" in collective else "none", "1" if is_rooted else "-1"],
                   f"{collective}: columns {columns}")
            expect(int(columns[1]) * blocks * 4 == size, f"{collective}: elements of a call {columns}")
            for in_place in (False, True):
                time, _, busbw, wrong = columns[9:13] if in_place else columns[5:9]
                if in_place not in forms:
                    expect(time == busbw == wrong == "N/A", f"{collective}: {columns}")
                    continue
                row = rows[size, in_place]
                is_same_time = math.isclose(float(time), row["p50_us"], rel_tol=1e-4, abs_tol=0.01)
                expect(is_same_time and abs(float(busbw) - row["busbw_GBs"]) < 0.01 and wrong == "0",
                       f"{collective}: {columns} {row}")
                expect(row["root"] == (1 if is_rooted else -1) and "GPU 0 of 2" in row["gpu"], f"{collective}: {row}")
                expect(row["algorithm"] == columns[13], f"{collective}: {columns} {row}")


def test_choices(path, **cuda):
    """Who carries the call, in which order, and what of the options."""
    small = ["allreduce", *BENCH, "-b", "4k", "-e", "4k"]
    # Processes that have a GPU each, and threads that do.
    for words, engine in (([], "one_shot"), (["--algorithm", "two_shot"], "two_shot"), (["--algorithm", "staged"], "staged"),
                           (["--algorithm", "ring"], "ipc_schedule+ring"), (["--threads", "--algorithm", "one_shot"], "one_shot"),
                           (["--hot"], "one_shot"), (["--dtype", "bf16", "--op", "avg"], "one_shot")):
        _, rows = measured(path, *small, *words, **cuda)
        expect({row["algorithm"] for row in rows.values()} == {engine}, f"{words}: {rows}")
    _, rows = measured(path, *small, TUTTI_ADJUST_ALLREDUCE="two_shot", **cuda)
    expect(rows[4096, False]["algorithm"] == "two_shot", f"a rule of the environment: {rows}")
    _, rows = measured(path, *small, "--in-place", **cuda)
    expect(list(rows) == [(4096, True)], f"in place alone: {rows}")
    # A rank for each GPU unless the number is given; ranks that share one wait for nobody's turn where calls are staged.
    table = table_of(run("bench", "allreduce", "--device", "cuda", "-b", 4, "-e", 4, *QUICK, CUDA_STAND_IN_DEVICES="3", **cuda))
    expect(len(table) == 1 and table[0][8] == table[0][12] == "N/A", f"nothing is counted that was not checked: {table}")
    _, rows = measured(path, "alltoall", *BENCH, "-n", 3, "-b", 12, "-e", 12, **cuda)
    expect(rows[12, True]["ranks"] == 3, f"three ranks on two GPUs: {rows}")
    result = run("run", "-n", 2, tools_test.tutti, "bench", "reduce_scatter", "--device", "cuda", "--check", "-b", 8, "-e", 8, "--json",
                 path, *QUICK, **cuda)
    expect(result.returncode == 0 and len(rows_of(path)) == 2, "inside tutti run", result)
    # More under way than may be pinned: calls wait for room, and are right.
    _, rows = measured(path, "allreduce", "--device", "cuda", "-n", 2, "--check", "-b", "64m", "-e", "64m", "--in-place", "--algorithm",
                       "staged", "--iters", 3, "--warmup", 0, "--budget", "0.01", **cuda)
    expect(list(rows) == [(64 << 20, True)], f"64 MiB: {rows}")


def test_errors(**cuda):
    for words, said in ((["barrier"], "no buffers"), (["allreduce", "--workload", "resnet50"], "--workload"),
                        (["allreduce", "--against", "gloo"], "--against"), (["allreduce", "--alloc", "tutti"], "--alloc"),
                        (["allreduce", "--algorithm", "rong"], "staged"), (["roofline"], "--device")):
        expect_usage_error(["bench", *words, "--device", "cuda"], said, **cuda)
    expect_usage_error(["bench", "allreduce", "--device", "gpu"], "'gpu' is not host or cuda")
    expect_usage_error(["bench", "allreduce", "--algorithm", "staged", "-n", 2], "staged")  # of GPUs only
    expect_usage_error(["bench", "allreduce", "--device", "cuda"], "--device cuda", "cannot be loaded", "nvidia-smi",
                       TUTTI_CUDA_LIBRARY="/no/such/libcuda.so")
    expect_usage_error(["bench", "allreduce", "--device", "cuda"], "--device cuda", "CUDA_VISIBLE_DEVICES", CUDA_STAND_IN_FAIL="cuInit=100",
                       **cuda)
    result = run("bench", "allreduce", "--device", "cuda", "-n", 2, "-b", "64k", "-e", "64k", CUDA_STAND_IN_MEMORY="4096", **cuda)
    expect(result.returncode == 1 and "out of memory" in result.stderr.lower() and "GPU" in result.stderr, "no memory", result)
    result = run("bench", "allreduce", "--device", "cuda", "-n", 2, "-b", 4, "-e", 4, "--algorithm", "nccl",
                 TUTTI_NCCL_LIBRARY="/no/such/libnccl.so", **cuda)
    expect(result.returncode == 1 and "nccl by argument" in result.stderr, "no NCCL", result)


def test_nccl(path, **both):
    """Its stand-in knows ranks that are threads."""
    for words, engine in ((["allgather"], "nccl"), (["allreduce", "--algorithm", "nccl"], "nccl"), (["allreduce"], "one_shot"),
                           (["scan"], "ipc_schedule+recursive_doubling")):
        _, rows = measured(path, *words, *BENCH, "--threads", "-b", "4k", "-e", "4k", **both)
        expect({row["algorithm"] for row in rows.values()} == {engine}, f"{words}: {rows}")
    result = run("bench", "allreduce", "--device", "cuda", "--threads", "-n", 3, "--algorithm", "nccl", "-b", 4, "-e", 4, **both)
    expect(result.returncode == 1 and "ranks 0 and 2 are on one GPU" in result.stderr, "NCCL wants a GPU for each rank", result)


def main():
    tools_test.tutti = os.path.abspath(sys.argv[1])
    if len(sys.argv) == 2:
        expect_usage_error(["bench", "allreduce", "--device", "cuda"], "--device cuda", "has no CUDA", "-Dcuda=enabled")
        result = run("run", "-n", 1, tools_test.tutti, "bench", "allreduce", "--device", "cuda")
        expect(result.returncode != 0 and "-Dcuda=enabled" in result.stderr, "a rank of somebody's job", result)
        return
    cuda = {"TUTTI_CUDA_LIBRARY": sys.argv[2]}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TMPDIR"] = folder
        path = os.path.join(folder, "rows.json")
        # A library of NCCL's that is installed has no part in this.
        no_nccl = {**cuda, "TUTTI_NCCL_LIBRARY": "/no/such/libnccl.so"}
        test_collectives(path, **no_nccl)
        test_choices(path, **no_nccl)
        test_errors(**cuda)
        if len(sys.argv) > 3:
            test_nccl(path, TUTTI_NCCL_LIBRARY=sys.argv[3], **cuda)
    print("passed")


if __name__ == "__main__":
    main()
