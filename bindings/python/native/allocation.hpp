// The output of an operation whose length follows from other ranks: made by a function of the program, or given
// and checked. Knows no queue.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "bindings/python/native/array.hpp"
#include "tutti/work.hpp"

namespace tutti::python {

// Requirements on the output.
struct ExpectedOutput {
  Dtype dtype = Dtype::u8;
  std::optional<Dtype> seen_as;  // the call's dtype=
  std::uint64_t row_count = 1;   // elements of a row
  bool is_on_gpu = false;
  std::optional<StreamNumber> stream;
};

// Threads: the last reference may be dropped by any thread; see keep().
class Allocation {
 public:
  Allocation(py::object function, const ExpectedOutput& expected)
      : function_(std::move(function)), expected_(expected) {}
  // Calls the function with the rows, and returns the memory of its array. Takes the GIL. Throws Error.
  void* allocate(std::span<const std::uint64_t> rows);
  // The array that the function returned, and the exception that it raised; null objects before. Need the GIL.
  py::object result() const { return result_; }
  py::object failure() const { return failure_; }

 private:
  void* call(std::span<const std::uint64_t> rows);

  py::object function_;
  ExpectedOutput expected_;
  py::object result_, failure_;
  Array array_;
};

// Throws Error unless an output of `got` elements holds these rows exactly.
void expect_rows(const char* name, std::uint64_t got, std::span<const std::uint64_t> rows,
                 std::uint64_t row_count);

}  // namespace tutti::python
