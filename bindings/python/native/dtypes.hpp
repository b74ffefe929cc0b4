// Names of dtypes in numpy and in array protocols. Knows no array.
#pragma once

#include <cstddef>
#include <string_view>

#include "bindings/python/native/dlpack.hpp"
#include "tutti/types.hpp"

namespace tutti::python {

const char* dtype_name(Dtype dtype);  // as numpy has it: "float32"
// The dtype of that name; raises ValueError naming the argument.
Dtype dtype_of_name(std::string_view name, const char* argument = "dtype");
std::size_t element_bytes(Dtype dtype);

// The dtype of a format of the struct module, which gives the kind; the item size gives the bytes. False for
// types that tutti lacks.
bool dtype_of_format(const char* format, std::size_t bytes, Dtype* dtype);
// The dtype of a record (numpy's structured dtype) or of raw bytes, by its struct format: a pair of a value
// and an index, or else opaque. False for references, which other processes cannot read, and for too large
// elements.
bool dtype_of_record(std::string_view format, std::size_t bytes, Dtype* dtype);
bool dtype_of_tensor(dlpack::DataType type, Dtype* dtype);
// The dtype of a numpy type string: "<f4".
bool dtype_of_type_string(std::string_view text, Dtype* dtype);

// For messages.
inline constexpr const char* kKnownTypes =
    "; expected integers, bool, float16, bfloat16, float32, float64, complex64, complex128, "
    "float8_e4m3fn, float8_e5m2, or records for minloc, maxloc and user_op()";

}  // namespace tutti::python
