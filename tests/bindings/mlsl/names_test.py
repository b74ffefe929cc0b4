"""Compares the symbols that libmlsl.so exports with the list of MLSL's functions. Knows names only.

usage: names_test.py LIBRARY LIST
"""

import subprocess
import sys


def main():
    library, listed = sys.argv[1:]
    output = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    exported = {line.split()[2].split("@")[0] for line in output.splitlines()}
    with open(listed, encoding="utf-8") as file:
        expected = set(file.read().split())
    assert len([name for name in expected if name.startswith("_ZN4MLSL")]) == 112, "112 functions of the C++ interface"
    assert len([name for name in expected if name.startswith("mlsl_")]) == 112, "112 functions of the C interface"
    assert exported == expected, f"missing: {sorted(expected - exported)}; not of MLSL: {sorted(exported - expected)}"
    dynamic = subprocess.run(["readelf", "-d", library], check=True, capture_output=True, text=True).stdout
    assert "Library soname: [libmlsl.so.1]" in dynamic, dynamic


if __name__ == "__main__":
    main()
