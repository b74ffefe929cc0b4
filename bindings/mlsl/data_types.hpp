// MLSL's data types and reductions as tutti's. Knows no communication.
#pragma once

#include <cstddef>

#include "bindings/mlsl/include/mlsl.hpp"
#include "tutti/types.hpp"

namespace tutti::mlsl {

// Errors: end the job for a number that is no enumerator.
Dtype dtype_of(MLSL::DataType type);
Op op_of(MLSL::ReductionType type);
std::size_t bytes_of(Dtype dtype);
inline std::size_t bytes_of(MLSL::DataType type) { return bytes_of(dtype_of(type)); }

}  // namespace tutti::mlsl
