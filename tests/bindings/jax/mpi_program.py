"""A rank that calls the MPI library for XLA as MPItrampoline does; needs no JAX. Two ranks, under `tutti run`."""

import ctypes
import os
import subprocess
import sys
import unittest.mock

import tutti.jax

MPI = ctypes.CDLL(tutti.jax.library())
WORD, NUMBER = ctypes.c_size_t, ctypes.c_int
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def constant(name):
    return WORD.in_dll(MPI, "MPIABI_" + name)


def number_of(function, comm):
    number = NUMBER()
    assert function(comm, ctypes.byref(number)) == 0, failure()
    return number.value


def failure():
    text, length = ctypes.create_string_buffer(1024), NUMBER()
    MPI.MPIABI_Error_string(1, text, ctypes.byref(length))
    assert length.value == len(text.value)
    return text.value.decode()


def split(colour, key):
    made = WORD()
    return MPI.MPIABI_Comm_split(constant("COMM_WORLD"), colour, key, ctypes.byref(made)), made


def check_names():
    with open(os.path.join(ROOT, "bindings", "jax", "mpi_names.txt"), encoding="utf-8") as file:
        names = [name for line in file if not line.startswith("#") for name in line.split()]
    assert len(names) > 600
    for name in names:
        getattr(MPI, "MPIABI_" + name)
    data = [constant(name).value for name in names if name.isupper()]
    assert len(set(data)) == len(data), "constants differ"


def check_missing_function():
    program = f"import ctypes; assert ctypes.CDLL({tutti.jax.library()!r}).MPIABI_Win_create() != 0"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "MPI_Win_create: tutti.jax does not have this MPI function" in done.stderr, done.stderr


def check_refused_install():
    """install() neither overrides what somebody else has set, nor says nothing where it comes too late."""
    names = ("JAX_CPU_COLLECTIVES_IMPLEMENTATION", "MPITRAMPOLINE_LIB")
    path, missing = tutti.jax.library(), "/nowhere/libtutti_jax.so"
    for variables, module, expected in (
        ({names[0]: "gloo"}, None, "JAX_CPU_COLLECTIVES_IMPLEMENTATION=gloo asks for other collectives; unset it"),
        ({names[1]: "/opt/libmpi.so"}, None, f"MPITRAMPOLINE_LIB=/opt/libmpi.so asks for another library; unset it, or set it to {path}"),
        ({}, "jaxlib", "jaxlib was loaded before"),
        ({}, None, f"{missing} cannot be loaded"),
    ):
        with unittest.mock.patch.dict(os.environ, variables), unittest.mock.patch.dict(sys.modules, {module: sys} if module else {}):
            patched = missing if missing in expected else path
            with unittest.mock.patch.object(tutti.jax, "library", lambda patched=patched: patched):
                before = {name: os.environ.get(name) for name in names}
                try:
                    tutti.jax.install()
                    raise AssertionError(f"install() took {variables}, expected: {expected}")
                except RuntimeError as error:
                    assert expected in str(error), error
                assert {name: os.environ.get(name) for name in names} == before


def check_sum_and_errors(comm, size):
    mine, total = (ctypes.c_float * 3)(1, 2, 3), (ctypes.c_float * 3)()
    assert MPI.MPIABI_Allreduce(mine, total, 3, constant("FLOAT"), constant("SUM"), comm) == 0, failure()
    assert list(total) == [size, 2 * size, 3 * size]
    assert MPI.MPIABI_Allreduce(mine, total, 3, constant("LONG_DOUBLE"), constant("SUM"), comm) != 0
    assert failure() == "tutti: MPI_Allreduce: the data type is not supported"
    assert MPI.MPIABI_Allreduce(mine, total, 3, constant("FLOAT"), constant("LXOR"), comm) != 0
    assert failure() == "tutti: MPI_Allreduce: the operation is not supported"


def check_uneven_reduce_scatter(comm, rank):
    given, got = (ctypes.c_int32 * 3)(1, 2, 3), (ctypes.c_int32 * 2)()
    counts = (NUMBER * 2)(1, 2)
    assert MPI.MPIABI_Reduce_scatter(given, got, counts, constant("INT32_T"), constant("SUM"), comm) == 0, failure()
    assert list(got)[: rank + 1] == ([2] if rank == 0 else [4, 6])


def check_wrong_order():
    """Ranks that ask for different communicators at once get an error that says what to do."""
    code, comm = split(0, 0)  # both say that they are the first of it
    assert code != 0 and comm.value == 0
    assert MPI.MPIABI_Allreduce(None, None, 0, constant("FLOAT"), constant("SUM"), comm) != 0
    assert "use each axis once in a computation of its own first" in failure(), failure()


def main():
    check_names()
    check_refused_install()
    provided = NUMBER()
    assert MPI.MPIABI_Init_thread(None, None, 0, ctypes.byref(provided)) == 0, failure()
    rank, size = number_of(MPI.MPIABI_Comm_rank, constant("COMM_WORLD")), number_of(MPI.MPIABI_Comm_size, constant("COMM_WORLD"))
    code, comm = split(3, size - 1 - rank)  # in reverse
    assert code == 0, failure()
    assert number_of(MPI.MPIABI_Comm_rank, comm) == size - 1 - rank
    check_sum_and_errors(comm, size)
    check_uneven_reduce_scatter(comm, size - 1 - rank)
    check_wrong_order()
    if rank == 0:
        check_missing_function()
    assert MPI.MPIABI_Comm_free(ctypes.byref(comm)) == 0 and comm.value == 0
    assert MPI.MPIABI_Finalize() == 0


if __name__ == "__main__":
    main()
