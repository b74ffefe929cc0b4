#!/usr/bin/env python3
"""Compiles kernels.cu for the architectures that tutti carries, and writes the result as a C++ source.
Knows nvcc's options; nothing of what the kernels do. Run by Meson.

usage: compile_kernels.py NVCC SOURCE ROOT IMAGE REPORT DEPFILE
       IMAGE   a .cpp with the fat binary as tutti::cuda::kKernelsImage
       REPORT  what ptxas says of every kernel: registers, stack and spills
"""

import os
import re
import struct
import subprocess
import sys
import tempfile

# Binaries for what is common, which also run on later chips of the same generation, and a text that the driver
# compiles for everything newer. --fmad=false: a product and a sum are never fused (runtime/base/ops.hpp).
ARCHITECTURES = ["-gencode", "arch=compute_80,code=sm_80", "-gencode", "arch=compute_90,code=[sm_90,compute_90]"]
FLAGS = ["-std=c++20", "-O3", "--fmad=false", "-Xptxas", "-v", "-t", "2"]


def toolkit_version(nvcc):
    text = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"release (\d+)\.(\d+)", text)
    return (int(found.group(1)), int(found.group(2))) if found else (0, 0)


def main():
    nvcc, source, root, image, report, depfile = sys.argv[1:]
    flags = FLAGS + ARCHITECTURES + ["-I", root]
    if toolkit_version(nvcc) >= (13, 0):
        flags.append("--compress-mode=size")  # a fifth of the size; every driver of this generation reads it
    with tempfile.TemporaryDirectory() as folder:
        binary = os.path.join(folder, "kernels.fatbin")
        result = subprocess.run([nvcc, *flags, "-MD", "-MF", depfile, "-MT", image, "-fatbin", source, "-o", binary],
                                stderr=subprocess.PIPE, text=True, check=False)
        if result.returncode != 0:
            sys.exit(result.stderr)
        with open(binary, "rb") as file:
            content = file.read()
    with open(report, "w", encoding="utf-8") as file:
        file.write(result.stderr)
    words = struct.unpack(f"<{(len(content) + 7) // 8}Q", content + bytes(-len(content) % 8))
    with open(image, "w", encoding="utf-8") as file:
        file.write("// Made by compile_kernels.py from kernels.cu.\n#include <cstdint>\n\nnamespace tutti::cuda {\n\n"
                   f"extern const std::uint64_t kKernelsImage[{len(words)}];\n"
                   f"alignas(64) const std::uint64_t kKernelsImage[{len(words)}] = {{\n")
        for start in range(0, len(words), 8):
            file.write(",".join(f"{word:#x}" for word in words[start:start + 8]) + ",\n")
        file.write("};\n\n}  // namespace tutti::cuda\n")


if __name__ == "__main__":
    main()
