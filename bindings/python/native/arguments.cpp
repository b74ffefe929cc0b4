// Converts arguments of Python to the C++ interface. Knows no collective.
#include "bindings/python/native/arguments.hpp"

#include <array>
#include <string>
#include <string_view>

#include "bindings/python/native/dtypes.hpp"

namespace tutti::python {
namespace {

struct OpRow {
  std::string_view name;
  Op op;
};
constexpr std::array<OpRow, 13> kOps = {{{"sum", Op::sum},
                                         {"prod", Op::prod},
                                         {"min", Op::min},
                                         {"max", Op::max},
                                         {"avg", Op::avg},
                                         {"band", Op::band},
                                         {"bor", Op::bor},
                                         {"bxor", Op::bxor},
                                         {"land", Op::land},
                                         {"lor", Op::lor},
                                         {"lxor", Op::lxor},
                                         {"minloc", Op::minloc},
                                         {"maxloc", Op::maxloc}}};

constexpr std::array kCollectives = {"allreduce",      "broadcast", "reduce", "allgather",
                                     "reduce_scatter", "alltoall",  "gather", "scatter",
                                     "barrier",        "scan",      "exscan"};

// The text of a str, which lives as long as the object; empty for anything else.
std::optional<std::string_view> text_of(py::handle object) {
  if (PyUnicode_Check(object.ptr()) == 0) return std::nullopt;
  Py_ssize_t bytes = 0;
  const char* text = PyUnicode_AsUTF8AndSize(object.ptr(), &bytes);
  if (text == nullptr) throw py::error_already_set();
  return std::string_view(text, static_cast<std::size_t>(bytes));
}

std::string prefix(const char* call, const char* name) { return std::string(call) + ": " + name + ": "; }

// The number of a stream, in the forms of libraries that have streams.
py::object number_of(py::handle stream) {
  if (PyIndex_Check(stream.ptr()) != 0) return py::reinterpret_borrow<py::object>(stream);
  if (py::hasattr(stream, "__cuda_stream__")) {
    const py::tuple version_and_number = stream.attr("__cuda_stream__")();
    if (version_and_number.size() == 2 && py::object(version_and_number[0]).equal(py::int_(0)))
      return version_and_number[1];
  }
  for (const char* name : {"cuda_stream", "ptr"}) {
    if (py::hasattr(stream, name)) return stream.attr(name);
  }
  return py::none();
}

std::optional<StreamNumber> stream_of(py::handle stream, const char* call) {
  if (stream.is_none()) return std::nullopt;
  const py::object number = number_of(stream);
  if (PyIndex_Check(number.ptr()) == 0) {
    throw py::type_error(prefix(call, "stream") +
                         "expected a number (of a cudaStream_t; 0: the default stream) or an object with "
                         "__cuda_stream__() of version 0, cuda_stream or ptr, not " +
                         Py_TYPE(stream.ptr())->tp_name);
  }
  const auto index = py::reinterpret_steal<py::object>(PyNumber_Index(number.ptr()));
  if (!index) throw py::error_already_set();
  const StreamNumber value = PyLong_AsSize_t(index.ptr());
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    throw py::value_error(prefix(call, "stream") + py::str(index).cast<std::string>() +
                          " is no address; expected 0 or more");
  }
  // Libraries call the default stream zero, a number that array protocols do not have.
  return value == 0 ? kDefaultStream : value;
}

std::string describe(const Array& array) {
  if (array.dtype() != Dtype::opaque) return dtype_name(array.dtype());
  return "records of " + std::to_string(array.element_bytes()) + " bytes";
}

std::string describe(StreamNumber stream) {
  if (stream == kDefaultStream) return "the default stream";
  return "stream " + std::to_string(stream);
}

}  // namespace

Reduction reduction_of(py::handle op, const char* call) {
  const std::optional<std::string_view> name = text_of(op);
  if (!name) {
    if (py::isinstance<OpObject>(op) && !op.cast<const OpObject&>().function)
      return op.cast<const OpObject&>().reduction;
    throw py::type_error(
        prefix(call, "op") +
        "expected a name, such as \"sum\", premul_sum(factor), or, in reductions, user_op()");
  }
  std::string known;
  for (const OpRow& row : kOps) {
    if (row.name == *name) return row.op;
    known += (known.empty() ? "" : ", ") + std::string(row.name);
  }
  throw py::value_error(prefix(call, "op") + "'" + std::string(*name) + "': expected one of " + known);
}

Reduction reduction_of(py::handle op, const char* call, Buffers& buffers, py::handle array) {
  if (!py::isinstance<OpObject>(op)) return reduction_of(op, call);
  const auto& object = op.cast<const OpObject&>();
  if (!object.function) return object.reduction;
  const Array& elements = buffers.output.is_empty() ? buffers.input : buffers.output;
  buffers.op = UserCall::make(object, elements, array);
  return buffers.op->reduction();
}

Collective collective_of(const std::string& name, const char* call) {
  for (std::size_t i = 0; i < kCollectives.size(); ++i) {
    if (name == kCollectives[i]) return static_cast<Collective>(i);
  }
  throw py::value_error(prefix(call, "collective") + "there is no '" + name + "'");
}

const char* name_of(Collective collective) { return kCollectives[static_cast<std::size_t>(collective)]; }

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

CallArguments::CallArguments(const OpenGroup& group, const char* call, py::handle stream)
    : call_(call), group_(group), given_(stream_of(stream, call)), stream_(given_) {}

Array CallArguments::array(py::handle object, const char* name, Use use) {
  Array array = Array::of(object, call_, name, use, given_);
  if (!array.is_on_gpu()) return array;
  is_on_gpu_ = true;
  if (!stream_) stream_ = array.ready_on();
  if (array.ready_on().value_or(*stream_) == *stream_) return array;
  throw py::value_error(prefix(call_, name) + "its elements are ready on " + describe(*array.ready_on()) +
                        ", and the call is on " + describe(*stream_) +
                        "; pass that stream (stream=), or have the one wait for the other and pass an array "
                        "that names no stream");
}

Buffers CallArguments::buffers(py::handle input, py::handle output) {
  Buffers buffers;
  if (!input.is_none()) buffers.input = array(input, "input", Use::read);
  if (!output.is_none()) buffers.output = array(output, "output", Use::written);
  const Array &in = buffers.input, &out = buffers.output;
  if (!in.is_empty() && !out.is_empty() &&
      (in.dtype() != out.dtype() || in.element_bytes() != out.element_bytes())) {
    throw py::type_error(prefix(call_, "output") + "elements are " + describe(out) + ", those of input " +
                         describe(in));
  }
  return buffers;
}

CallOptions CallArguments::options(py::handle algorithm, bool will_wait, py::handle wire_dtype) const {
  const std::optional<std::string_view> text = text_of(algorithm);
  if (!text) throw py::type_error(prefix(call_, "algorithm") + "expected a str");
  CallOptions options = this->options(will_wait);
  options.algorithm = *text;
  if (!wire_dtype.is_none()) options.wire_dtype = dtype_of_name(wire_dtype.cast<std::string>(), "wire_dtype");
  return options;
}

CallOptions CallArguments::options(bool will_wait) const {
  CallOptions options = group_.options();
  if (!is_on_gpu_) {
    if (given_) {
      throw py::value_error(prefix(call_, "stream") +
                            "there is no array on a GPU, and streams order nothing else; leave it out");
    }
    options.will_wait = will_wait;
    return options;
  }
  options.memory = Memory::device;
  const StreamNumber number = stream_.value_or(kDefaultStream);
  if (number != kDefaultStream) options.cuda_stream = reinterpret_cast<void*>(number);
  return options;
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
