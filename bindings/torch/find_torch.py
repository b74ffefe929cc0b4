#!/usr/bin/env python3
"""Facts about the interpreter's torch for Meson, as lines of KEY, tab, VALUE; only REASON where there is none to build for.

Run without the variables of Python (-E), so that pip's isolated build finds the torch that is installed. Imports torch and knows
where distributions put its headers; knows nothing of tutti.
"""
import os
import sys


def describe():
    try:
        import torch  # pylint: disable=import-outside-toplevel
    except ImportError as error:
        return [("REASON", f"no torch for {sys.executable} ({error})")]
    if not torch.distributed.is_available():
        return [("REASON", f"torch {torch.__version__} was built without torch.distributed")]
    if not torch.compiled_with_cxx11_abi():
        return [("REASON", f"torch {torch.__version__} was built with the old ABI of std::string")]
    folder = os.path.dirname(os.path.realpath(torch.__file__))
    # Of pip in its own folder; Debian's where the compiler finds them anyway (libtorch-dev).
    for include in (os.path.join(folder, "include"), "/usr/include"):
        if os.path.exists(os.path.join(include, "torch", "csrc", "distributed", "c10d", "ProcessGroup.hpp")):
            break
    else:
        return [("REASON", f"no headers of torch {torch.__version__} (Debian: libtorch-dev)")]
    lines = [("VERSION", torch.__version__), ("LIBRARIES", os.path.join(folder, "lib"))]
    if include != "/usr/include":
        lines.append(("INCLUDE", include))
    lines.append(("INCLUDE", os.path.join(include, "torch", "csrc", "api", "include")))
    # Types cross between extension modules only where both were built for the same pybind11.
    for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI"):
        value = getattr(torch._C, "_PYBIND11_" + name, None)  # pylint: disable=protected-access
        if value is not None:
            lines.append(("DEFINE", f'PYBIND11_{name}="{value}"'))
    return lines


if __name__ == "__main__":
    print("\n".join(f"{key}\t{value}" for key, value in describe()))
