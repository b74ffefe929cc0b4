// Headers that most sources of the Python module include; compiled once where -Dprecompiled=true. Sources do not rely
// on it.
// A guard, because compilers warn of #pragma once in a header that is compiled by itself.
#ifndef TUTTI_PRECOMPILED_PYTHON
#define TUTTI_PRECOMPILED_PYTHON

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#endif  // TUTTI_PRECOMPILED_PYTHON
