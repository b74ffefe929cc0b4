#!/usr/bin/env python3
"""Runs a test program on a GPU, or skips (exit status 77) with the reason where there is none.

usage: with_gpu.py PROGRAM [ARGUMENT...]     TUTTI_CUDA_LIBRARY names the driver's library (default: libcuda.so.1)
"""
import ctypes
import os
import sys

SKIPPED = 77


def why_no_gpu(library):
    """None if a GPU can be used, else a sentence."""
    try:
        driver = ctypes.CDLL(library)
    except OSError as error:
        return f"no CUDA driver: {error}"
    status = driver.cuInit(0)
    if status != 0:
        return f"cuInit failed: CUDA error {status}"
    count = ctypes.c_int(0)
    status = driver.cuDeviceGetCount(ctypes.byref(count))
    if status != 0 or count.value == 0:
        return "the driver sees no GPU"
    return None


def main():
    library = os.environ.get("TUTTI_CUDA_LIBRARY", "libcuda.so.1")
    reason = why_no_gpu(library)
    if reason:
        print(f"skipped: {reason}")
        return SKIPPED
    os.environ["TUTTI_CUDA_LIBRARY"] = library
    os.execv(sys.argv[1], sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
