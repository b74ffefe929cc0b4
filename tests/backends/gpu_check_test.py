#!/usr/bin/env python3
"""tools/dev/gpu-check without a GPU: what a pack holds, and what its report makes of measurements and of steps that hang.

usage: gpu_check_test.py GPU_CHECK
"""
import importlib.machinery
import importlib.util
import pathlib
import subprocess
import sys
import tarfile
import tempfile


def load(path):
    loader = importlib.machinery.SourceFileLoader("gpu_check", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_check", loader))
    loader.exec_module(module)
    return module


def expect(condition, what):
    if not condition:
        sys.exit(f"gpu_check_test: {what}")


def test_pack(program, scratch):
    file = scratch / "pack.tar.gz"
    subprocess.run([program, "--pack", str(file)], check=True, stdout=subprocess.DEVNULL)
    with tarfile.open(file) as archive:
        archive.extractall(scratch, filter="data") if hasattr(tarfile, "data_filter") else archive.extractall(scratch)
    tree = scratch / "tutti-gpu-check"
    libraries = tree / "gpu-check-libraries"
    for name in ("meson.build", "tools/dev/gpu-check", "backends/cuda/kernels.cu"):
        expect((tree / name).is_file(), f"the pack lacks {name}")
    # The packed libraries are found where the pack lies, by the packed program.
    for name in ("libhwy", "fmt", "libsodium", "CLI11", "nlohmann_json", "catch2"):
        flags = subprocess.run([str(libraries / "bin/pkg-config"), "--cflags", "--libs", name], check=True, capture_output=True, text=True,
                               env={"PKG_CONFIG_PATH": str(libraries / "pkgconfig"), "PATH": "/usr/bin:/bin"}).stdout
        expect(str(tree.resolve()) in str(pathlib.Path(flags.split("-I")[1].split()[0]).resolve()), f"{name}: {flags}")
        for flag in flags.split():
            if flag.startswith("/") or (not flag.startswith("-") and "/" in flag):
                expect(pathlib.Path(flag).is_file(), f"{name}: {flag} is not there")


def test_allreduce(module):
    line = '{"collective": "allreduce", "bytes": 4096, "p50_us": 8.0, "algorithm": "one_shot"}'
    rows = module.allreduce_rows(line + "\n", 2, "auto")
    expect(rows == [{"what": "allreduce", "bytes": 4096, "us": 8.0, "gbps": 2.0, "ranks": 2, "engine": "auto"}], f"a line: {rows}")
    rows = module.allreduce_rows("# a table\ntutti bench: rank 0: no NCCL\nending\n", 1, "nccl")
    expect(rows[0]["error"] == "tutti bench: rank 0: no NCCL", f"a failure: {rows}")


def test_report(module, scratch):
    rows = [{"what": "copy", "bytes": 1 << 20, "us": 1.0, "gbps": 2000.0}, {"what": "launch", "bytes": 4, "us": 2.0, "gbps": 0.0},
            {"what": "reduce 2 f32", "bytes": 1 << 26, "us": 100.0, "gbps": 1500.0},
            {"what": "allreduce", "bytes": 4, "us": 5.0, "gbps": 0.1, "ranks": 2, "engine": "one_shot"},
            {"what": "allreduce", "bytes": 4, "ranks": 2, "engine": "nccl", "error": "why"}]
    module.add_ratios(rows)
    expect(rows[2]["of_copy_percent"] == 75.0, f"of copy: {rows[2]}")
    expect(rows[3]["launches"] == 2.5 and "of_copy_percent" not in rows[3], f"launches: {rows[3]}")
    expect("why" in module.table_of(rows) and "75 %" in module.table_of(rows), module.table_of(rows))
    run = module.Run(scratch, 0.05)
    _, is_passed = run.step("an extra", ["false"], may_fail=True)
    expect(not is_passed and run.steps.pop()["status"] == "skipped: exit status 1", "an extra that fails")
    text, is_passed = run.step("a hang", ["sh", "-c", "echo begun; sleep 60"])
    expect(not is_passed and "begun" in text and "did not end" in run.steps[0]["status"], f"a hang: {run.steps} {text}")
    expect(run.step("too late", ["true"])[1] is False and run.steps[1]["status"] == "no time left", f"too late: {run.steps}")


def main():
    program = sys.argv[1]
    with tempfile.TemporaryDirectory() as scratch:
        test_pack(program, pathlib.Path(scratch))
        test_allreduce(load(program))
        test_report(load(program), pathlib.Path(scratch))


if __name__ == "__main__":
    main()
