// What dtypes are called in numpy and in the protocols of arrays. Knows no array.
#pragma once

#include <cstddef>
#include <string_view>

#include "bindings/python/native/dlpack.hpp"
#include "tutti/types.hpp"

namespace tutti::python {

const char* dtype_name(Dtype dtype);  // as numpy has it: "float32"
// The dtype of that name; raises ValueError.
Dtype dtype_of_name(std::string_view name);
std::size_t element_bytes(Dtype dtype);

// The dtype of a format of the struct module, which says the kind; the item size says how many bytes. False
// for what tutti has not.
bool dtype_of_format(const char* format, std::size_t bytes, Dtype* dtype);
bool dtype_of_tensor(dlpack::DataType type, Dtype* dtype);
// The dtype of a type string of numpy's: "<f4".
bool dtype_of_type_string(std::string_view text, Dtype* dtype);

// For messages.
inline constexpr const char* kKnownTypes =
    "; expected integers, bool, float16, bfloat16, float32, float64, float8_e4m3fn or float8_e5m2";

}  // namespace tutti::python
