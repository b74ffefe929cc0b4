// Elements of tensors: dtypes, and arithmetic on integers, which the runtime neither scales nor averages. Knows no operation.
#pragma once

#include <cstddef>
#include <optional>

#include "bindings/tensorflow/tensorflow.hpp"
#include "tutti/c_types.h"

namespace tutti::tensorflow {

struct Elements {
  tutti_dtype_t dtype = TUTTI_F32;
  std::size_t bytes = 0;  // of one
  bool is_integer = false;
};

// None for dtypes that are not communicated, such as strings.
std::optional<Elements> elements_of(TF_DataType dtype);

// target[i] = source[i] * factor, computed in double precision and rounded towards zero. target may be source.
void scale_integers(tutti_dtype_t dtype, const void* source, void* target, std::size_t count, double factor);
// data[i] /= divisor, rounded towards zero, as Horovod averages integers.
void divide_integers(tutti_dtype_t dtype, void* data, std::size_t count, int divisor);

}  // namespace tutti::tensorflow
