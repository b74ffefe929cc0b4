// Calling the program's function for elements of two ranks. Knows no collective.
#include "bindings/python/native/user_op.hpp"

#include <string>
#include <utility>

#include "bindings/python/native/dtypes.hpp"

namespace tutti::python {
namespace {

thread_local bool is_callback_running = false;

// The numpy dtype of an array's elements.
py::object numpy_type(const py::module_& numpy, const Array& elements, py::handle array) {
  if (py::hasattr(array, "dtype")) {
    py::object own = array.attr("dtype");
    if (py::isinstance(own, numpy.attr("dtype"))) return own;
  }
  if (elements.dtype() != Dtype::opaque) return numpy.attr("dtype")(dtype_name(elements.dtype()));
  return numpy.attr("dtype")("V" + std::to_string(elements.element_bytes()));
}

}  // namespace

InCallback::InCallback() : was_running_(std::exchange(is_callback_running, true)) {}
InCallback::~InCallback() { is_callback_running = was_running_; }
bool InCallback::is_running() { return is_callback_running; }

std::shared_ptr<UserCall> UserCall::make(const OpObject& op, const Array& elements, py::handle array) {
  std::shared_ptr<UserCall> call(new UserCall, [](UserCall* last) {
    const py::gil_scoped_acquire gil;
    delete last;
  });
  const py::module_ numpy = py::module_::import("numpy");
  call->function_ = op.function;
  call->dtype_ = numpy_type(numpy, elements, array);
  call->from_buffer_ = numpy.attr("frombuffer");
  call->is_commutative_ = op.is_commutative;
  call->element_bytes_ = elements.element_bytes();
  call->is_opaque_ = elements.dtype() == Dtype::opaque;
  return call;
}

UserCall::~UserCall() {
  if (!failure_) return;
  failure_->restore();  // the Work was dropped, so nobody else reports it
  PyErr_WriteUnraisable(function_.ptr());
}

Reduction UserCall::reduction() {
  if (is_opaque_)
    return Reduction::user(&combine, this, is_commutative_, static_cast<std::uint32_t>(element_bytes_));
  return Reduction::user(&combine, this, is_commutative_);
}

py::object UserCall::take_failure() {
  if (!failure_) return {};
  py::object raised = failure();
  failure_.reset();
  return raised;
}

py::object UserCall::elements_at(const void* memory, std::size_t count) const {
  const auto bytes = static_cast<py::ssize_t>(count * element_bytes_);
  return from_buffer_(py::memoryview::from_memory(memory, bytes), dtype_);
}

void UserCall::combine(void* self, void* dst, const void* a, const void* b, std::size_t count) noexcept {
  auto& call = *static_cast<UserCall*>(self);
  if (count == 0) return;
  const py::gil_scoped_acquire gil;
  if (call.has_failed_) return;
  const InCallback callback;
  try {
    const auto bytes = static_cast<py::ssize_t>(count * call.element_bytes_);
    const py::object result = call.function_(call.elements_at(a, count), call.elements_at(b, count));
    py::object to = call.from_buffer_(py::memoryview::from_memory(dst, bytes), call.dtype_);
    to[py::ellipsis()] = result;
  } catch (py::error_already_set& error) {
    call.has_failed_ = true;
    call.failure_.emplace(std::move(error));
  } catch (const std::exception& error) {
    call.has_failed_ = true;
    PyErr_SetString(PyExc_RuntimeError, error.what());
    call.failure_.emplace();
  }
}

}  // namespace tutti::python
