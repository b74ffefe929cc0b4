"""The command `tutti` of an installed package: becomes the program in the package's folder.

Outside of the package tutti, whose import loads native modules: the program needs none of them.
"""

import importlib.util
import os
import signal
import sys

__all__ = ["main", "program"]


def program():
    """The path of the program, which lies in the package and so is found wherever that was installed."""
    found = importlib.util.find_spec("tutti")
    for folder in (found.submodule_search_locations or []) if found else []:
        path = os.path.join(folder, "bin", "tutti")
        if os.access(path, os.X_OK):
            return path
    raise FileNotFoundError(f"tutti: the program bin/tutti is not in the package {found and found.origin}: install it again, with pip")


def main():
    """Does not return. The program's name is the one that was typed: a link called horovodrun is that command."""
    try:
        path = program()
        # Python ignores these, and a program that it becomes would, too, with all ranks that it starts.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        os.execv(path, sys.argv)
    except OSError as error:
        sys.exit(str(error))
