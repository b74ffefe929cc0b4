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
#include "bindings/python/native/user_op.hpp"
#include "tutti/work.hpp"

namespace tutti::python {

// Returns the memory that `make` gets from a function of the program. Takes the GIL. Throws Error, which begins with
// `name`, for its exceptions; `failure` (may be null) keeps one that Python raised.
template <class Make>
auto ask_program(const char* name, py::object* failure, const Make& make) {
  const py::gil_scoped_acquire gil;
  const InCallback running;
  try {
    return make();
  } catch (py::error_already_set& raised) {
    const py::object& exception = raised.value();
    if (failure != nullptr) *failure = exception;
    const bool is_memory = raised.matches(PyExc_MemoryError);
    throw Error(is_memory ? StatusCode::resource_exhausted : StatusCode::invalid_argument, -1,
                std::string(name) + ": " + Py_TYPE(exception.ptr())->tp_name + ": " +
                    py::str(exception).template cast<std::string>());
  } catch (const py::builtin_exception& refused) {  // of the array
    throw Error(StatusCode::invalid_argument, -1, refused.what());
  }
}

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
