// Arguments of calls: pairs of arrays that must fit each other, operations, lists of counts. Knows no
// collective.
#pragma once

#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <vector>

#include "bindings/python/native/group.hpp"

namespace tutti::python {

// An op that is more than its name: premul_sum() of Python.
struct Premultiplied {
  Reduction reduction;
};

// "sum" and the others by name, or a Premultiplied. Raises TypeError or ValueError.
Reduction reduction_of(py::handle op, const char* call);

// An item of the rule grammar; its text belongs to the argument.
CallOptions options_of(py::handle algorithm, const char* call, bool will_wait);

// One number per rank, in elements. None: empty.
std::vector<std::uint64_t> counts_of(py::handle numbers, const char* call, const char* name);

// Both arrays of a call, whose dtypes must be equal; None for the one means "in place": only the other is
// used.
Buffers buffers_of(py::handle input, py::handle output, const char* call);

// Raises ValueError unless the array has so many elements.
void expect_count(const char* call, const char* name, std::size_t got, std::size_t expected);
// got / ranks, which must be exact.
std::size_t block_count(const char* call, const char* name, std::size_t got, int ranks);

}  // namespace tutti::python
