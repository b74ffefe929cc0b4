"""Says what to do where the package was compiled for another interpreter than the one that imports it.

Knows the names of the package's files, no call.
"""

import importlib.machinery
import os
import sys


def check():
    """Errors: ImportError where the native module of this interpreter is missing."""
    folder = os.path.dirname(os.path.abspath(__file__))
    files = os.listdir(folder)
    if any("_native" + suffix in files for suffix in importlib.machinery.EXTENSION_SUFFIXES):
        return
    built = sorted(name for name in files if name.startswith("_native.") and name.endswith(".so"))
    here = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]} ({sys.executable})"
    raise ImportError(
        f"tutti in {folder} was built for another Python ({', '.join(built) or 'no native module is there'}), and this is {here}: "
        "run the program with that Python, or install tutti for this one: "
        f"{sys.executable} -m pip install SOURCE_OR_WHEEL (docs/install.md: tools/dev/wheels makes wheels for other Pythons)"
    )
