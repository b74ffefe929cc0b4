// Conversions of enumerators. See data_types.hpp.
#include "bindings/mlsl/data_types.hpp"

#include <string>

#include "bindings/mlsl/failure.hpp"

namespace tutti::mlsl {

Dtype dtype_of(MLSL::DataType type) {
  switch (type) {
    case MLSL::DT_FLOAT:
      return Dtype::f32;
    case MLSL::DT_DOUBLE:
      return Dtype::f64;
    case MLSL::DT_BYTE:
      return Dtype::u8;
  }
  fail("data type " + std::to_string(static_cast<int>(type)) + " is none of DT_FLOAT, DT_DOUBLE, DT_BYTE");
}

Op op_of(MLSL::ReductionType type) {
  switch (type) {
    case MLSL::RT_SUM:
      return Op::sum;
    case MLSL::RT_MIN:
      return Op::min;
    case MLSL::RT_MAX:
      return Op::max;
  }
  fail("reduction type " + std::to_string(static_cast<int>(type)) + " is none of RT_SUM, RT_MIN, RT_MAX");
}

std::size_t bytes_of(Dtype dtype) {
  if (dtype == Dtype::f32) return sizeof(float);
  return dtype == Dtype::f64 ? sizeof(double) : 1;
}

}  // namespace tutti::mlsl
