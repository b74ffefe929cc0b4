// User-defined ops: the function of one call and the state it needs. Knows no collective.
#pragma once

#include <pybind11/pybind11.h>

#include <cstddef>
#include <memory>
#include <optional>

#include "bindings/python/native/array.hpp"
#include "tutti/work.hpp"

namespace tutti::python {

// An op that is more than its name: premul_sum() or user_op() of Python.
struct OpObject {
  Reduction reduction;
  py::object function;  // of user_op()
  bool is_commutative = true;
};

// The op of one call: its function, and the numpy dtype of its arrays. All members need the GIL. Dropping the
// last reference takes the GIL itself.
class UserCall {
 public:
  // `array`: the argument of the call. If its dtype is one of numpy's, the function gets arrays of that dtype.
  static std::shared_ptr<UserCall> make(const OpObject& op, const Array& elements, py::handle array);
  // Refers to this.
  Reduction reduction();
  // The exception that the function raised, or a null object. After an exception the call has no valid result.
  py::object failure() const { return failure_ ? py::object(failure_->value()) : py::object(); }
  // The same, moved out: the destructor no longer reports it.
  py::object take_failure();

 private:
  UserCall() = default;
  ~UserCall();
  static void combine(void* self, void* dst, const void* a, const void* b, std::size_t count) noexcept;
  py::object elements_at(const void* memory, std::size_t count) const;

  py::object function_;
  py::object dtype_;
  py::object from_buffer_;
  bool is_commutative_ = true;
  std::size_t element_bytes_ = 0;
  bool is_opaque_ = false;
  bool has_failed_ = false;
  std::optional<py::error_already_set> failure_;
};

// While it lives, this thread runs a function that must not wait.
class InCallback {
 public:
  InCallback();
  ~InCallback();
  InCallback(const InCallback&) = delete;
  InCallback& operator=(const InCallback&) = delete;
  static bool is_running();

 private:
  bool was_running_;
};

}  // namespace tutti::python
