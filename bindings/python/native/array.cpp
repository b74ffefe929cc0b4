// How arrays of other libraries become pointer, count and dtype. Knows no group and no collective.
#include "bindings/python/native/array.hpp"

#include <array>
#include <string>
#include <string_view>
#include <utility>

namespace tutti::python {

struct Array::Asked {
  const char* call;
  const char* name;
  Use use;
  template <class Exception>
  [[noreturn]] void refuse(const std::string& why) const {
    throw Exception(std::string(call) + ": " + name + ": " + why);
  }
};

namespace {

struct DtypeRow {
  const char* name;
  std::size_t bytes;
};
// In the order of Dtype.
constexpr std::array<DtypeRow, kDtypeCount> kDtypes = {{{"int8", 1},
                                                        {"uint8", 1},
                                                        {"int16", 2},
                                                        {"uint16", 2},
                                                        {"int32", 4},
                                                        {"uint32", 4},
                                                        {"int64", 8},
                                                        {"uint64", 8},
                                                        {"float16", 2},
                                                        {"bfloat16", 2},
                                                        {"float32", 4},
                                                        {"float64", 8},
                                                        {"float8_e4m3fn", 1},
                                                        {"float8_e5m2", 1},
                                                        {"bool", 1}}};

constexpr Dtype integer(std::size_t bytes, bool is_signed) {
  constexpr Dtype kSigned[] = {Dtype::i8, Dtype::i16, Dtype::i32, Dtype::i64};
  constexpr Dtype kUnsigned[] = {Dtype::u8, Dtype::u16, Dtype::u32, Dtype::u64};
  const std::size_t index = bytes == 1 ? 0 : bytes == 2 ? 1 : bytes == 4 ? 2 : 3;
  return is_signed ? kSigned[index] : kUnsigned[index];
}

// The dtype of a format of the struct module, which says the kind; the item size says how many bytes.
bool dtype_of_format(const char* format, std::size_t bytes, Dtype* dtype) {
  std::string_view text = format == nullptr ? "B" : format;
  if (!text.empty() && (text[0] == '@' || text[0] == '=' || text[0] == '<')) text.remove_prefix(1);
  if (text.size() != 1) return false;
  constexpr std::string_view kSigned = "bhilqn";
  constexpr std::string_view kUnsigned = "BHILQNc";
  const char kind = text[0];
  if (kSigned.find(kind) != std::string_view::npos) {
    *dtype = integer(bytes, true);
  } else if (kUnsigned.find(kind) != std::string_view::npos) {
    *dtype = integer(bytes, false);
  } else if (kind == 'f') {
    *dtype = Dtype::f32;
  } else if (kind == 'd') {
    *dtype = Dtype::f64;
  } else if (kind == 'e') {
    *dtype = Dtype::f16;
  } else if (kind == '?') {
    *dtype = Dtype::boolean;
  } else {
    return false;
  }
  return element_bytes(*dtype) == bytes;
}

bool dtype_of_tensor(dlpack::DataType type, Dtype* dtype) {
  if (type.lanes != 1) return false;
  switch (type.code) {
    case dlpack::Code::integer:
    case dlpack::Code::unsigned_integer:
      *dtype = integer(type.bits / 8U, type.code == dlpack::Code::integer);
      break;
    case dlpack::Code::floating:
      *dtype = type.bits == 16 ? Dtype::f16 : type.bits == 32 ? Dtype::f32 : Dtype::f64;
      break;
    case dlpack::Code::bfloat:
      *dtype = Dtype::bf16;
      break;
    case dlpack::Code::boolean:
      *dtype = Dtype::boolean;
      break;
    case dlpack::Code::float8_e4m3fn:
      *dtype = Dtype::f8e4m3;
      break;
    case dlpack::Code::float8_e5m2:
      *dtype = Dtype::f8e5m2;
      break;
    default:
      return false;
  }
  return element_bytes(*dtype) * 8 == type.bits;
}

bool is_row_after_row(const dlpack::Tensor& tensor) {
  if (tensor.strides == nullptr) return true;
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.dimension_count - 1; i >= 0; --i) {
    if (tensor.shape[i] == 0) return true;
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
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
    return object.attr("view")(element_bytes(candidate) == 1 ? "uint8" : "uint16");
  }
  return py::none();
}

constexpr const char* kNotContiguous =
    "the elements are not row after row in memory (C-contiguous); pass a copy, as numpy.ascontiguousarray() "
    "or torch's .contiguous() make one";
constexpr const char* kReadOnlyText = "the array is read-only, and the call writes to it";
constexpr const char* kKnownTypes =
    "; expected integers, bool, float16, bfloat16, float32, float64, float8_e4m3fn or float8_e5m2";

}  // namespace

const char* dtype_name(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].name; }
std::size_t element_bytes(Dtype dtype) { return kDtypes[static_cast<std::size_t>(dtype)].bytes; }

Dtype dtype_of_name(std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < kDtypes.size(); ++i) {
    if (name == kDtypes[i].name) return static_cast<Dtype>(i);
    known += std::string(i == 0 ? "" : ", ") + kDtypes[i].name;
  }
  throw py::value_error("dtype: '" + std::string(name) + "': expected one of " + known);
}

Array Array::of(py::handle object, const char* call, const char* name, Use use) {
  const Asked asked{call, name, use};
  Array array;
  if (array.borrow_view(object, asked) || array.borrow_capsule(object, asked)) return array;
  asked.refuse<py::type_error>("expected an array (the buffer protocol or __dlpack__), not " +
                               type_name(object));
}

void* Array::at(std::size_t index) const { return static_cast<char*>(data_) + index * element_bytes(dtype_); }

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
  if (!is_viewed_as_integers && !dtype_of_format(view_.format, item_bytes, &dtype_)) {
    asked.refuse<py::type_error>("elements of format '" + std::string(view_.format) + "'" + kKnownTypes);
  }
  if (PyBuffer_IsContiguous(&view_, 'C') == 0) asked.refuse<py::type_error>(kNotContiguous);
  if (asked.use == Use::written && view_.readonly != 0) asked.refuse<py::type_error>(kReadOnlyText);
  data_ = view_.buf;
  count_ = static_cast<std::size_t>(view_.len) / item_bytes;
  return true;
}

bool Array::borrow_capsule(py::handle object, const Asked& asked) {
  if (!py::hasattr(object, "__dlpack__")) return false;
  const py::object make = object.attr("__dlpack__");
  py::object capsule;
  try {
    capsule = make(py::arg("max_version") = py::make_tuple(1, 0));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;
    capsule = make();  // older libraries know no versions
  }
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
    return true;
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor") == 0) {
    asked.refuse<py::type_error>("__dlpack__ of " + type_name(object) + " gave no tensor");
  }
  auto* managed = static_cast<dlpack::Managed*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  owner_ = Owner::capsule;
  managed_ = managed;
  describe(managed->tensor, false, asked);
  return true;
}

void Array::describe(const dlpack::Tensor& tensor, bool is_readonly, const Asked& asked) {
  if (tensor.device_type != dlpack::kCpu && tensor.device_type != dlpack::kCudaHost) {
    asked.refuse<py::type_error>("the memory of another device (DLPack's number " +
                                 std::to_string(tensor.device_type) + "); expected main memory");
  }
  if (!dtype_of_tensor(tensor.dtype, &dtype_)) {
    asked.refuse<py::type_error>("elements of DLPack's type " +
                                 std::to_string(static_cast<int>(tensor.dtype.code)) + " with " +
                                 std::to_string(tensor.dtype.bits) + " bits" + kKnownTypes);
  }
  if (!is_row_after_row(tensor)) asked.refuse<py::type_error>(kNotContiguous);
  if (asked.use == Use::written && is_readonly) asked.refuse<py::type_error>(kReadOnlyText);
  data_ = static_cast<char*>(tensor.data) + tensor.offset_bytes;
  count_ = 1;
  for (std::int32_t i = 0; i < tensor.dimension_count; ++i)
    count_ *= static_cast<std::size_t>(tensor.shape[i]);
}

void Array::take(Array& other) {
  data_ = other.data_;
  count_ = other.count_;
  dtype_ = other.dtype_;
  owner_ = std::exchange(other.owner_, Owner::none);
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
  }
}

}  // namespace tutti::python
