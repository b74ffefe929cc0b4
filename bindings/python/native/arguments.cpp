// How arguments of Python become those of the C++ interface. Knows no collective.
#include "bindings/python/native/arguments.hpp"

#include <array>
#include <string>
#include <string_view>

namespace tutti::python {
namespace {

struct OpRow {
  std::string_view name;
  Op op;
};
constexpr std::array<OpRow, 10> kOps = {{{"sum", Op::sum},
                                         {"prod", Op::prod},
                                         {"min", Op::min},
                                         {"max", Op::max},
                                         {"avg", Op::avg},
                                         {"band", Op::band},
                                         {"bor", Op::bor},
                                         {"bxor", Op::bxor},
                                         {"land", Op::land},
                                         {"lor", Op::lor}}};

// The text of a str, which lives as long as the object; empty for anything else.
std::optional<std::string_view> text_of(py::handle object) {
  if (PyUnicode_Check(object.ptr()) == 0) return std::nullopt;
  Py_ssize_t bytes = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &bytes);
  if (text == nullptr) throw py::error_already_set();
  return std::string_view(text, static_cast<std::size_t>(bytes));
}

std::string prefix(const char* call, const char* name) { return std::string(call) + ": " + name + ": "; }

}  // namespace

Reduction reduction_of(py::handle op, const char* call) {
  const std::optional<std::string_view> name = text_of(op);
  if (!name) {
    if (py::isinstance<Premultiplied>(op)) return op.cast<const Premultiplied&>().reduction;
    throw py::type_error(prefix(call, "op") + "expected a name, such as \"sum\", or premul_sum(factor)");
  }
  std::string known;
  for (const OpRow& row : kOps) {
    if (row.name == *name) return row.op;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw py::value_error(prefix(call, "op") + "'" + std::string(*name) + "': expected one of " + known);
}

CallOptions options_of(py::handle algorithm, const char* call, bool will_wait) {
  const std::optional<std::string_view> text = text_of(algorithm);
  if (!text) throw py::type_error(prefix(call, "algorithm") + "expected a str");
  return CallOptions{*text, will_wait};
}

std::vector<std::uint64_t> counts_of(py::handle numbers, const char* call, const char* name) {
  std::vector<std::uint64_t> counts;
  if (numbers.is_none()) return counts;
  for (const py::handle number : py::iter(numbers)) {
    const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(number.ptr()));
    if (!index) throw py::error_already_set();
    const std::int64_t value = PyLong_AsLongLong(index.ptr());
    if (value == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (value < 0) {
      throw py::value_error(prefix(call, name) + std::to_string(value) + " is negative");
    }
    counts.push_back(static_cast<std::uint64_t>(value));
  }
  return counts;
}

Buffers buffers_of(py::handle input, py::handle output, const char* call) {
  Buffers buffers;
  if (!input.is_none()) buffers.input = Array::of(input, call, "input", Use::read);
  if (!output.is_none()) buffers.output = Array::of(output, call, "output", Use::written);
  const Array &in = buffers.input, &out = buffers.output;
  if (!in.is_empty() && !out.is_empty() && in.dtype() != out.dtype()) {
    throw py::type_error(prefix(call, "output") + "elements are " + dtype_name(out.dtype()) +
                         ", those of input " + dtype_name(in.dtype()));
  }
  return buffers;
}

void expect_count(const char* call, const char* name, std::size_t got, std::size_t expected) {
  if (got == expected) return;
  throw py::value_error(prefix(call, name) + std::to_string(got) + " elements, expected " +
                        std::to_string(expected));
}

std::size_t block_count(const char* call, const char* name, std::size_t got, int ranks) {
  const auto size = static_cast<std::size_t>(ranks);
  if (got % size == 0) return got / size;
  throw py::value_error(prefix(call, name) + std::to_string(got) + " elements, expected a multiple of " +
                        std::to_string(ranks) + ", the size of the group");
}

}  // namespace tutti::python
