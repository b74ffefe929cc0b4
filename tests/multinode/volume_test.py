#!/usr/bin/env python3
"""What leaves a node is what the algorithm promises: counted on the links of a bed; and results are right where packets are lost.

Knows the tool and its variables, no transport's inside. Usage: volume_test.py PART TUTTI; exit status 77 is "skipped".
"""
import json
import os
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "cli"))
import testbed  # pylint: disable=wrong-import-position

SECONDS = 100
RANKS_PER_NODE = 2
MIB = 1 << 20
LOSSY_ROUNDS = 5  # a round sends hundreds of packets, of which a link drops one of a hundred: it may happen that all arrive
FEW, MANY = 4, 24  # calls; the difference has no start in it, no warm-up and no verification
# Of the vector: what leaves each of two nodes of two ranks.
SHARES = (("allreduce", "hierarchical", 1), ("allreduce", "hierarchical(across=1)", 1), ("allreduce", "ring", 1.5),
          ("allgather", "hierarchical", 0.5), ("allgather", "direct", 1), ("reduce_scatter", "hierarchical", 0.5),
          ("alltoall", "hierarchical", 1), ("alltoall", "linear", 1))

tutti = ""


def expect(condition, what):
    if not condition:
        print("FAILED: " + what, flush=True)
        os._exit(1)


def measure(bed, collective, *words):
    """A checked measurement by ranks in all nodes."""
    variables = {"TUTTI_JOB_ID": f"volume{os.getpid()}", "TUTTI_SECRET": "0123456789abcdef", "TUTTI_ADDRESS": bed.address(0)}
    with tempfile.NamedTemporaryFile("r") as lines:
        done = subprocess.run([testbed.__file__, "ranks", str(RANKS_PER_NODE), "--", "env", "TUTTI_RANK={rank}", "TUTTI_SIZE={size}",
                               "TUTTI_LOCAL_RANK={local_rank}", "TUTTI_LOCAL_SIZE={local_size}", tutti, "bench", collective, "--check",
                               "--json", lines.name, "--warmup", "2", *map(str, words)],
                              env={**os.environ, **variables}, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=SECONDS)
        rows = [json.loads(line) for line in lines]
    expect(done.returncode == 0 and rows and all(row["wrong"] == 0 and row["nodes"] == bed.nodes for row in rows),
           f"{collective} {words}: {rows}\n{done.stdout}{done.stderr}")


def volume(bed):
    def sent_by_node(collective, algorithm, count):
        before = [bed.traffic(node)["tx_bytes"] for node in range(bed.nodes)]
        measure(bed, collective, "--algorithm", algorithm, "-b", MIB, "-e", MIB, "--iters", count)
        return [bed.traffic(node)["tx_bytes"] - then for node, then in enumerate(before)]

    for collective, algorithm, share in SHARES:
        few, many = (sent_by_node(collective, algorithm, count) for count in (FEW, MANY))
        for node in range(bed.nodes):
            sent = (many[node] - few[node]) / (MANY - FEW) / MIB
            print(f"{collective} {algorithm}: node {node} sends {sent:.3f} of the vector, expected {share}", flush=True)
            # Headers and acknowledgements come on top; how many, and what control messages the start takes, differs a little from run to run.
            expect(share * 0.99 <= sent <= share * 1.15 + 0.01, "what leaves a node")


def loss(bed):
    for _ in range(LOSSY_ROUNDS):
        for collective in ("allreduce", "alltoall"):
            measure(bed, collective, "-b", 4, "-e", "64k", "-f", 128, "--iters", 10)
        if bed.lost(0) + bed.lost(1) > 0:
            return
    expect(False, "packets were lost")


def main():
    global tutti
    part, tutti = sys.argv[1], os.path.abspath(sys.argv[2])
    reason = testbed.why_unavailable(needs_loss=part == "loss")
    if reason:
        print("skipped: " + reason)
        sys.exit(testbed.SKIPPED)
    sys.exit(testbed.run_in_bed(globals()[part], loss=0.01 if part == "loss" else 0))


if __name__ == "__main__":
    main()
