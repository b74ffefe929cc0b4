#!/usr/bin/env python3
"""Every way in which the calls of ranks can differ is named on all ranks, long before the deadline: none is silent. Usage:
mismatch_matrix_test.py PROGRAM; TUTTI_TRANSPORTS chooses the transports."""

import os
import sys

from fault_job import Ranks


def main():
    program = os.path.abspath(sys.argv[1])
    failed = 0
    for size in (2, 4):
        with Ranks(program, "mismatch", size, TUTTI_TIMEOUT="30s") as job:
            job.wait_for("all cases|NOT NAMED|caught|start failed", range(size))
            wrong = [line for lines in job.lines for line in lines if not line.startswith(("named", "all cases"))]
            named = [sum(line.startswith("named") for line in lines) for lines in job.lines]
            print(f"{size} ranks: {named} cases are named")
            if wrong or min(named) == 0 or len(set(named)) > 1:
                print("\n".join(wrong) or job.text())
                failed += 1
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
