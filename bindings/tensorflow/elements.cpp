// A table of dtypes, and loops over integers of each width. See elements.hpp.
#include "bindings/tensorflow/elements.hpp"

#include <algorithm>
#include <limits>

namespace tutti::tensorflow {
namespace {

// Calls body with a pointer of the dtype's type; does nothing for other dtypes.
template <class Body>
void as_integers(tutti_dtype_t dtype, void* data, const Body& body) {
  switch (dtype) {
    case TUTTI_I8:
      return body(static_cast<std::int8_t*>(data));
    case TUTTI_U8:
      return body(static_cast<std::uint8_t*>(data));
    case TUTTI_I16:
      return body(static_cast<std::int16_t*>(data));
    case TUTTI_U16:
      return body(static_cast<std::uint16_t*>(data));
    case TUTTI_I32:
      return body(static_cast<std::int32_t*>(data));
    case TUTTI_U32:
      return body(static_cast<std::uint32_t*>(data));
    case TUTTI_I64:
      return body(static_cast<std::int64_t*>(data));
    case TUTTI_U64:
      return body(static_cast<std::uint64_t*>(data));
    default:
      return;
  }
}

// A value outside of the type's range becomes its nearest one: converting it would be undefined.
template <class T>
T rounded(double value) {
  constexpr auto kLeast = static_cast<double>(std::numeric_limits<T>::min());
  constexpr auto kGreatest = static_cast<double>(std::numeric_limits<T>::max());
  if (!(value > kLeast)) return std::numeric_limits<T>::min();
  if (value >= kGreatest) return std::numeric_limits<T>::max();
  return static_cast<T>(value);
}

}  // namespace

std::optional<Elements> elements_of(TF_DataType dtype) {
  switch (dtype) {
    case TF_FLOAT:
      return Elements{TUTTI_F32, 4, false};
    case TF_DOUBLE:
      return Elements{TUTTI_F64, 8, false};
    case TF_HALF:
      return Elements{TUTTI_F16, 2, false};
    case TF_BFLOAT16:
      return Elements{TUTTI_BF16, 2, false};
    case TF_INT8:
      return Elements{TUTTI_I8, 1, true};
    case TF_UINT8:
      return Elements{TUTTI_U8, 1, true};
    case TF_INT16:
      return Elements{TUTTI_I16, 2, true};
    case TF_UINT16:
      return Elements{TUTTI_U16, 2, true};
    case TF_INT32:
      return Elements{TUTTI_I32, 4, true};
    case TF_UINT32:
      return Elements{TUTTI_U32, 4, true};
    case TF_INT64:
      return Elements{TUTTI_I64, 8, true};
    case TF_UINT64:
      return Elements{TUTTI_U64, 8, true};
    case TF_BOOL:
      return Elements{TUTTI_U8, 1, true};
    case TF_COMPLEX64:
      return Elements{TUTTI_C64, 8, false};
    case TF_COMPLEX128:
      return Elements{TUTTI_C128, 16, false};
  }
  return std::nullopt;
}

void scale_integers(tutti_dtype_t dtype, const void* source, void* target, std::size_t count, double factor) {
  as_integers(dtype, target, [&](auto* to) {
    using T = std::remove_pointer_t<decltype(to)>;
    const auto* from = static_cast<const T*>(source);
    std::transform(from, from + count, to,
                   [&](T value) { return rounded<T>(static_cast<double>(value) * factor); });
  });
}

void divide_integers(tutti_dtype_t dtype, void* data, std::size_t count, int divisor) {
  as_integers(dtype, data, [&](auto* values) {
    using T = std::remove_pointer_t<decltype(values)>;
    std::transform(values, values + count, values, [&](T value) {
      if constexpr (std::is_signed_v<T>) {
        return static_cast<T>(value / divisor);
      } else {
        return static_cast<T>(value / static_cast<unsigned>(divisor));
      }
    });
  });
}

}  // namespace tutti::tensorflow
