// Maps errors of tutti to exceptions of Python. Knows no call.
#include "bindings/python/native/errors.hpp"

#include <array>

namespace tutti::python {
namespace {

namespace py = pybind11;

struct Row {
  const char* code;
  const char* exception;
};
// In the order of StatusCode.
constexpr std::array<Row, 10> kRows = {{{"ok", "InternalError"},
                                        {"invalid_argument", "InvalidArgumentError"},
                                        {"unsupported", "UnsupportedError"},
                                        {"mismatch", "MismatchError"},
                                        {"timeout", "TimeoutError"},
                                        {"peer_failed", "PeerFailedError"},
                                        {"refused", "RefusedError"},
                                        {"resource_exhausted", "ResourceExhaustedError"},
                                        {"aborted", "AbortedError"},
                                        {"internal", "InternalError"}}};
static_assert(kRows.size() == static_cast<std::size_t>(StatusCode::internal) + 1);

py::object rank_or_none(int rank) {
  if (rank < 0) return py::none();
  return py::int_(rank);
}

}  // namespace

py::object exception_of(const Error& error, const char* operation, int rank) {
  const Row& row = kRows[static_cast<std::size_t>(error.code())];
  py::object made = py::module_::import("tutti._errors").attr(row.exception)(error.what());
  made.attr("code") = row.code;
  made.attr("peer") = rank_or_none(error.peer());
  made.attr("rank") = rank_or_none(rank);
  made.attr("operation") = operation;
  return made;
}

void raise(const Error& error, const char* operation, int rank, py::handle cause) {
  const py::object made = exception_of(error, operation, rank);
  if (cause) made.attr("__cause__") = cause;
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(made.ptr())), made.ptr());
  throw py::error_already_set();
}

}  // namespace tutti::python
