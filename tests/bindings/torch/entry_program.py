"""A rank that uses the backend without importing its module: torch loads the package's entry point.

Knows torch's interface only, of 2.5 and newer. usage: entry_program.py PART RANK SIZE STORE_FILE
"""
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist

RANK, SIZE, STORE = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
BROKEN = """
import torch
import torch.distributed as dist
print("imported")
try:
    dist.init_process_group("tutti", store=dist.HashStore(), rank=0, world_size=1)
except ImportError as error:
    print(error)
"""

# A program that hard-codes gloo and knows nothing of tutti.
NAMES_GLOO = """
import sys
import torch
import torch.distributed as dist
assert "tutti" not in sys.modules
try:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    print(dist.get_backend(), tensor.tolist())
    dist.destroy_process_group()
except ValueError as error:
    print(error)
"""


def check_unimported():
    assert "tutti" not in sys.modules, "the entry point loads nothing"
    dist.init_process_group("tutti", init_method="file://" + STORE, rank=RANK, world_size=SIZE)
    tensor = torch.full((3,), RANK + 1.0)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [SIZE * (SIZE + 1) / 2] * 3, tensor
    import tutti.torch  # pylint: disable=import-outside-toplevel
    assert tutti.torch.empty(4).tolist() == [0.0] * 4, "its module can still be imported"
    dist.monitored_barrier()
    dist.destroy_process_group()


def check_broken_package():
    """`import torch` works where the package does not; the first process group says why."""
    with tempfile.TemporaryDirectory() as folder:
        os.mkdir(os.path.join(folder, "tutti"))
        with open(os.path.join(folder, "tutti", "__init__.py"), "w", encoding="utf-8") as file:
            file.write("raise ImportError('tutti is broken')\n")
        done = subprocess.run([sys.executable, "-c", BROKEN], env={**os.environ, "PYTHONPATH": folder}, capture_output=True,
                              text=True, timeout=100, check=False)
    assert done.stdout == "imported\ntutti is broken\n", (done.returncode, done.stdout, done.stderr)


def check_variable():
    """TUTTI_TORCH_INSTALL_AS gives gloo to tutti; a name that torch lacks is refused where a backend is named, not by `import torch`."""
    for value, said in (("gloo", "tutti [1.0, 1.0, 1.0]"), ("mpi, GLOO", "tutti [1.0, 1.0, 1.0]"), ("", "gloo [1.0, 1.0, 1.0]"),
                        ("glou", "TUTTI_TORCH_INSTALL_AS: expected one of gloo, mpi, nccl, ucc, got 'glou'")):
        done = subprocess.run([sys.executable, "-c", NAMES_GLOO], env={**os.environ, "TUTTI_TORCH_INSTALL_AS": value},
                              capture_output=True, text=True, timeout=100, check=False)
        assert done.stdout == said + "\n", (value, done.returncode, done.stdout, done.stderr)


if __name__ == "__main__":
    check_unimported()
    if RANK == 0:
        check_broken_package()
        check_variable()
