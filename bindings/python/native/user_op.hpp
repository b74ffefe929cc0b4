// Ops that are functions of the program's: what one call of tutti keeps for them. Knows no collective.
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

// The op of one call: the function, and the type of numpy's in which it sees the elements. Everything here
// needs the GIL, but the end of the last reference, which takes it.
class UserCall {
 public:
  // `array`: the call's, whose dtype counts where it is one of numpy's.
  static std::shared_ptr<UserCall> make(const OpObject& op, const Array& elements, py::handle array);
  // Refers to this.
  Reduction reduction();
  // What the function has raised; a null object: nothing. The result of the call has then no meaning.
  py::object failure() const { return failure_ ? py::object(failure_->value()) : py::object(); }
  // The same, which is then somebody else's to report.
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
