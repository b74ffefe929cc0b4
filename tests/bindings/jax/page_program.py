"""A rank of a JAX job that is the Python code of docs/jax.md, its blocks one after the other, and then uses what they define.

usage: page_program.py page RANK 2 PORT
"""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def run_page(rank, port):
    """The names that the blocks define."""
    with open(os.path.join(ROOT, "docs", "jax.md"), encoding="utf-8") as file:
        blocks = re.findall(r"^```py\n(.*?)^```$", file.read(), re.MULTILINE | re.DOTALL)
    assert len(blocks) == 2, f"the page has {len(blocks)} blocks"
    assert ":29700" in blocks[0], "the page's port"
    sys.argv[1:] = [str(rank)]
    names = {}
    for block in blocks:
        exec(block.replace(":29700", ":" + port), names)  # pylint: disable=exec-used
    return names


def main():
    rank, port = int(sys.argv[2]), sys.argv[4]
    names = run_page(rank, port)
    import jax  # pylint: disable=import-outside-toplevel  # after the page's install()
    import numpy  # pylint: disable=import-outside-toplevel

    sharding = jax.sharding.NamedSharding(names["mesh"], jax.sharding.PartitionSpec("data"))
    array = jax.make_array_from_process_local_data(sharding, numpy.full(3, rank + 1, "float32"))
    assert float(jax.jit(jax.numpy.sum)(array)) == 3 * (1 + 2)
    # The loss of rank r is (3 (r + 1))^2, and its gradient 6 (r + 1)^2 for each weight.
    loss, weights = names["step"](numpy.ones(3, "float32"), numpy.full((4, 3), rank + 1, "float32"))
    numpy.testing.assert_allclose(loss, (9 + 36) / 2)
    numpy.testing.assert_allclose(weights, 1 - 0.1 * (6 + 24) / 2 * numpy.ones(3), rtol=1e-5)


if __name__ == "__main__":
    main()
