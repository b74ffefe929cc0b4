// Errors of tutti as exceptions of Python. Knows the classes of tutti/_errors.py and no call.
#pragma once

#include <pybind11/pybind11.h>

#include "tutti/work.hpp"

namespace tutti::python {

// The exception whose class belongs to the code, with code, peer, rank and operation as attributes.
// `rank`: -1 where there is none. Needs the GIL.
pybind11::object exception_of(const Error& error, const char* operation, int rank);
// Throws it. `cause`: an exception of the program's that led to it, or a null object.
[[noreturn]] void raise(const Error& error, const char* operation, int rank, pybind11::handle cause = {});

}  // namespace tutti::python
