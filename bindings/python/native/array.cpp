// Converts arrays of other libraries to pointer, count and dtype. Knows no group and no collective.
#include "bindings/python/native/array.hpp"

#include <pybind11/stl.h>

#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tutti::python {

struct Array::Asked {
  const char* call;
  const char* name;
  Use use;
  std::optional<StreamNumber> stream;
  template <class Exception>
  [[noreturn]] void refuse(const std::string& why) const {
    throw Exception(std::string(call) + ": " + name + ": " + why);
  }
};

namespace {

// Strides that count elements have a unit of 1, those that count bytes the bytes of an element.
bool is_row_after_row(std::span<const std::int64_t> shape, std::span<const std::int64_t> strides,
                      std::int64_t unit) {
  std::int64_t expected = unit;
  for (std::size_t i = shape.size(); i-- > 0;) {
    if (shape[i] == 0) return true;
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

bool is_row_after_row(const dlpack::Tensor& tensor) {
  const auto dimensions = static_cast<std::size_t>(tensor.dimension_count);
  return tensor.strides == nullptr ||
         is_row_after_row({tensor.shape, dimensions}, {tensor.strides, dimensions}, 1);
}

std::size_t element_count(std::span<const std::int64_t> shape) {
  std::size_t count = 1;
  for (const std::int64_t length : shape) count *= static_cast<std::size_t>(length);
  return count;
}

std::vector<std::uint64_t> shape_of(const dlpack::Tensor& tensor) {
  return {tensor.shape, tensor.shape + tensor.dimension_count};
}

std::string type_name(py::handle object) { return Py_TYPE(object.ptr())->tp_name; }

// numpy arrays of types that the buffer protocol has no letter for (ml_dtypes) are seen as integers of their
// size. None: not one of those.
py::object as_integers(py::handle object, Dtype* dtype) {
  if (!py::hasattr(object, "dtype") || !py::hasattr(object, "view")) return py::none();
  const auto name = py::str(object.attr("dtype")).cast<std::string>();
  for (const Dtype candidate : {Dtype::bf16, Dtype::f8e4m3, Dtype::f8e5m2}) {
    if (name != dtype_name(candidate)) continue;
    *dtype = candidate;
    return object.attr("view")(python::element_bytes(candidate) == 1 ? "uint8" : "uint16");
  }
  return py::none();
}

bool is_gpus(std::int32_t device_type) {
  return device_type == dlpack::kCuda || device_type == dlpack::kCudaManaged;
}

bool says_gpu(py::handle object) {
  return is_gpus(object.attr("__dlpack_device__")().cast<std::pair<std::int32_t, std::int32_t>>().first);
}

py::object capsule_of(py::handle object, std::optional<StreamNumber> stream) {
  const py::object make = object.attr("__dlpack__");
  const auto ask = [&make](const auto&... stream_if_any) {
    try {
      return make(py::arg("max_version") = py::make_tuple(1, 0), py::arg_v(stream_if_any)...);
    } catch (py::error_already_set& error) {
      if (!error.matches(PyExc_TypeError)) throw;
      return make(py::arg_v(stream_if_any)...);  // older libraries know no versions
    }
  };
  return stream ? ask(py::arg("stream") = *stream) : ask();
}

bool is_there(const py::dict& interface, const char* key) {
  return interface.contains(key) && !interface[key].is_none();
}

// An item of __cuda_array_interface__.
template <class T, class Asked>
T item_of(const py::dict& interface, const char* key, const Asked& asked) {
  try {
    if (interface.contains(key)) return interface[key].template cast<T>();
  } catch (const py::cast_error&) {
    // As if it were missing.
  }
  asked.template refuse<py::type_error>("'" + std::string(key) +
                                        "' of its __cuda_array_interface__ is missing or of a wrong type");
}

constexpr const char* kNotContiguous =
    "the elements are not row after row in memory (C-contiguous); pass a copy, as numpy.ascontiguousarray() "
    "or torch's .contiguous() make one";
constexpr const char* kReadOnlyText = "the array is read-only, and the call writes to it";

}  // namespace

Array Array::of(py::handle object, const char* call, const char* name, Use use,
                std::optional<StreamNumber> stream) {
  const Asked asked{call, name, use, stream};
  Array array;
  // DLPack knows more dtypes than CUDA's interface.
  if (array.borrow_view(object, asked) || array.borrow_tensor(object, asked) ||
      array.borrow_cuda_interface(object, asked)) {
    if (array.dtype_ != Dtype::opaque) array.element_bytes_ = python::element_bytes(array.dtype_);
    return array;
  }
  asked.refuse<py::type_error>(
      "expected an array (the buffer protocol, __dlpack__ or __cuda_array_interface__), not " +
      type_name(object));
}

std::vector<std::uint64_t> Array::shape(py::handle object) const {
  switch (owner_) {
    case Owner::none:
      return {};
    case Owner::view:
      return {view_.shape, view_.shape + view_.ndim};
    case Owner::capsule:
      return shape_of(static_cast<const dlpack::Managed*>(managed_)->tensor);
    case Owner::versioned_capsule:
      return shape_of(static_cast<const dlpack::ManagedVersioned*>(managed_)->tensor);
    case Owner::object:
      break;
  }
  return object.attr("__cuda_array_interface__")["shape"].cast<std::vector<std::uint64_t>>();
}

bool Array::see_as(Dtype dtype) {
  const std::size_t bytes = count_ * element_bytes_;
  const std::size_t element = python::element_bytes(dtype);
  if (element == 0 || bytes % element != 0) return false;
  dtype_ = dtype;
  element_bytes_ = element;
  count_ = bytes / element;
  return true;
}

void* Array::at(std::size_t index) const { return static_cast<char*>(data_) + index * element_bytes_; }

bool Array::borrow_view(py::handle object, const Asked& asked) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) return false;
  bool is_viewed_as_integers = false;
  if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    py::error_already_set cause;
    const py::object integers = as_integers(object, &dtype_);
    if (integers.is_none()) asked.refuse<py::type_error>(cause.what() + std::string(kKnownTypes));
    if (PyObject_GetBuffer(integers.ptr(), &view_, PyBUF_STRIDES | PyBUF_FORMAT) != 0)
      throw py::error_already_set();
    is_viewed_as_integers = true;
  }
  owner_ = Owner::view;  // from here on the destructor gives it back
  const auto item_bytes = static_cast<std::size_t>(view_.itemsize);
  element_bytes_ = item_bytes;
  const bool is_known = is_viewed_as_integers || dtype_of_format(view_.format, item_bytes, &dtype_) ||
                        (view_.format != nullptr && dtype_of_record(view_.format, item_bytes, &dtype_));
  if (!is_known) {
    asked.refuse<py::type_error>("elements of format '" + std::string(view_.format) + "'" + kKnownTypes);
  }
  if (PyBuffer_IsContiguous(&view_, 'C') == 0) asked.refuse<py::type_error>(kNotContiguous);
  if (asked.use == Use::written && view_.readonly != 0) asked.refuse<py::type_error>(kReadOnlyText);
  data_ = view_.buf;
  count_ = static_cast<std::size_t>(view_.len) / item_bytes;
  return true;
}

bool Array::borrow_tensor(py::handle object, const Asked& asked) {
  if (!py::hasattr(object, "__dlpack__")) return false;
  // Where no stream is given, tensors of the CPU are spared the question: torch's answer takes a microsecond.
  const bool is_asked_with_stream = asked.stream && says_gpu(object);
  take_capsule(object, asked, is_asked_with_stream ? asked.stream : std::nullopt);
  if (!is_on_gpu_) return true;
  ready_on_ = asked.stream.value_or(kDefaultStream);
  if (!is_asked_with_stream) {
    // No number means the default stream, but older versions of torch order nothing then.
    release();
    take_capsule(object, asked, ready_on_);
  }
  return true;
}

void Array::take_capsule(py::handle object, const Asked& asked, std::optional<StreamNumber> stream) {
  const py::object capsule = capsule_of(object, stream);
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
    auto* managed =
        static_cast<dlpack::ManagedVersioned*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor_versioned"));
    if (managed->major != 1) {
      asked.refuse<py::type_error>("DLPack of version " + std::to_string(managed->major) + ", expected 1");
    }
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
    owner_ = Owner::versioned_capsule;
    managed_ = managed;
    describe(managed->tensor, (managed->flags & dlpack::kReadOnly) != 0, asked);
    return;
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor") == 0) {
    asked.refuse<py::type_error>("__dlpack__ of " + type_name(object) + " gave no tensor");
  }
  auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  owner_ = Owner::capsule;
  managed_ = managed;
  describe(managed->tensor, false, asked);
}

void Array::describe(const dlpack::Tensor& tensor, bool is_readonly, const Asked& asked) {
  is_on_gpu_ = is_gpus(tensor.device_type);
  if (!is_on_gpu_ && tensor.device_type != dlpack::kCpu && tensor.device_type != dlpack::kCudaHost) {
    asked.refuse<py::type_error>("the memory of another device (DLPack's number " +
                                 std::to_string(tensor.device_type) +
                                 "); expected main memory or a GPU of CUDA's");
  }
  if (!dtype_of_tensor(tensor.dtype, &dtype_)) {
    asked.refuse<py::type_error>("elements of DLPack's type " +
                                 std::to_string(static_cast<int>(tensor.dtype.code)) + " with " +
                                 std::to_string(tensor.dtype.bits) + " bits" + kKnownTypes);
  }
  if (!is_row_after_row(tensor)) asked.refuse<py::type_error>(kNotContiguous);
  if (asked.use == Use::written && is_readonly) asked.refuse<py::type_error>(kReadOnlyText);
  data_ = static_cast<char*>(tensor.data) + tensor.offset_bytes;
  count_ = element_count({tensor.shape, static_cast<std::size_t>(tensor.dimension_count)});
}

bool Array::borrow_cuda_interface(py::handle object, const Asked& asked) {
  if (!py::hasattr(object, "__cuda_array_interface__")) return false;
  const py::dict interface = object.attr("__cuda_array_interface__");
  const int version = item_of<int>(interface, "version", asked);
  if (version != 2 && version != 3) {
    asked.refuse<py::type_error>("__cuda_array_interface__ of version " + std::to_string(version) +
                                 ", expected 2 or 3");
  }
  if (is_there(interface, "mask")) asked.refuse<py::type_error>("the array has a mask; pass one without");
  const auto type = item_of<std::string>(interface, "typestr", asked);
  if (!dtype_of_type_string(type, &dtype_)) {
    asked.refuse<py::type_error>("elements of type '" + type + "' in __cuda_array_interface__" + kKnownTypes +
                                 " (bfloat16 and 8-bit floats by __dlpack__)");
  }
  const auto shape = item_of<std::vector<std::int64_t>>(interface, "shape", asked);
  if (is_there(interface, "strides")) {
    const auto strides = item_of<std::vector<std::int64_t>>(interface, "strides", asked);
    const auto unit = static_cast<std::int64_t>(python::element_bytes(dtype_));
    if (strides.size() != shape.size() || !is_row_after_row(shape, strides, unit))
      asked.refuse<py::type_error>(kNotContiguous);
  }
  const auto [address, is_readonly] = item_of<std::pair<std::uintptr_t, bool>>(interface, "data", asked);
  if (asked.use == Use::written && is_readonly) asked.refuse<py::type_error>(kReadOnlyText);
  if (is_there(interface, "stream")) {
    ready_on_ = item_of<StreamNumber>(interface, "stream", asked);
    if (*ready_on_ == 0) {
      asked.refuse<py::value_error>(
          "__cuda_array_interface__ has the stream 0, which could be one of two; expected 1, 2 or an "
          "address");
    }
  }
  data_ = reinterpret_cast<void*>(address);
  count_ = element_count(shape);
  is_on_gpu_ = true;
  owner_ = Owner::object;
  managed_ = object.inc_ref().ptr();
  return true;
}

void Array::take(Array& other) {
  data_ = other.data_;
  count_ = other.count_;
  dtype_ = other.dtype_;
  element_bytes_ = other.element_bytes_;
  owner_ = std::exchange(other.owner_, Owner::none);
  is_on_gpu_ = other.is_on_gpu_;
  ready_on_ = other.ready_on_;
  managed_ = other.managed_;
  if (owner_ == Owner::view) view_ = other.view_;
}

void Array::release() {
  switch (std::exchange(owner_, Owner::none)) {
    case Owner::none:
      break;
    case Owner::view:
      PyBuffer_Release(&view_);
      break;
    case Owner::capsule: {
      auto* managed = static_cast<dlpack::Managed*>(managed_);
      if (managed->release != nullptr) managed->release(managed);
      break;
    }
    case Owner::versioned_capsule: {
      auto* managed = static_cast<dlpack::ManagedVersioned*>(managed_);
      if (managed->release != nullptr) managed->release(managed);
      break;
    }
    case Owner::object:
      Py_DECREF(static_cast<PyObject*>(managed_));
      break;
  }
}

}  // namespace tutti::python
