"""The rank of a process, as its launcher's environment has it."""

import os

_PAIRS = [("HOROVOD_RANK", "HOROVOD_SIZE"), ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"), ("PMI_RANK", "PMI_SIZE")]


def get_env_rank_and_size():
    """(rank, size) of the first pair of variables that is set; (0, 1) for none. Errors: RuntimeError where one of a pair is missing."""
    for names in _PAIRS:
        values = [os.environ.get(name) for name in names]
        there = [name for name, value in zip(names, values) if value is not None]
        if len(there) == 2:
            return int(values[0]), int(values[1])
        if there:
            raise RuntimeError(f"the environment has {there[0]} only: {names[0]} and {names[1]} belong together")
    return 0, 1
