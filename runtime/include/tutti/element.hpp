// Maps C++ types to dtypes, for the typed calls. Knows nothing else of tutti.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "tutti/types.hpp"

namespace tutti {

// C++20 has no types for these; the bits are the number. Any type of a framework may be mapped as well:
//   template <> struct tutti::DtypeOf<my::half> { static constexpr tutti::Dtype value = tutti::Dtype::f16; };
struct Float16 {
  std::uint16_t bits;
};
struct BFloat16 {
  std::uint16_t bits;
};
struct Float8E4M3 {
  std::uint8_t bits;
};
struct Float8E5M2 {
  std::uint8_t bits;
};
// For Op::minloc and Op::maxloc. Padding behind the index is part of the element, and has no meaning.
template <class Value, class Index>
struct ValueIndex {
  Value value;
  Index index;
};

namespace detail {
template <Dtype D>
using DtypeConstant = std::integral_constant<Dtype, D>;
// Integers by size and sign, so that long and long long both work wherever they are 64 bits.
template <class T>
constexpr Dtype integer_dtype() {
  constexpr Dtype kTypes[2][4] = {{Dtype::u8, Dtype::u16, Dtype::u32, Dtype::u64},
                                  {Dtype::i8, Dtype::i16, Dtype::i32, Dtype::i64}};
  return kTypes[std::is_signed_v<T> ? 1 : 0][sizeof(T) == 1   ? 0
                                             : sizeof(T) == 2 ? 1
                                             : sizeof(T) == 4 ? 2
                                                              : 3];
}
}  // namespace detail

// Has no value for a type that is no dtype of tutti: use the untyped calls, with a Dtype, for it.
template <class T, class Enable = void>
struct DtypeOf;
template <class T>
struct DtypeOf<T, std::enable_if_t<std::is_integral_v<T>>>
    : detail::DtypeConstant<detail::integer_dtype<T>()> {};
template <>
struct DtypeOf<bool> : detail::DtypeConstant<Dtype::boolean> {};
template <>
struct DtypeOf<std::byte> : detail::DtypeConstant<Dtype::u8> {};
template <>
struct DtypeOf<float> : detail::DtypeConstant<Dtype::f32> {};
template <>
struct DtypeOf<double> : detail::DtypeConstant<Dtype::f64> {};
template <>
struct DtypeOf<Float16> : detail::DtypeConstant<Dtype::f16> {};
template <>
struct DtypeOf<BFloat16> : detail::DtypeConstant<Dtype::bf16> {};
template <>
struct DtypeOf<Float8E4M3> : detail::DtypeConstant<Dtype::f8e4m3> {};
template <>
struct DtypeOf<Float8E5M2> : detail::DtypeConstant<Dtype::f8e5m2> {};
template <>
struct DtypeOf<std::complex<float>> : detail::DtypeConstant<Dtype::c64> {};
template <>
struct DtypeOf<std::complex<double>> : detail::DtypeConstant<Dtype::c128> {};
template <>
struct DtypeOf<ValueIndex<float, std::int32_t>> : detail::DtypeConstant<Dtype::f32_i32> {};
template <>
struct DtypeOf<ValueIndex<double, std::int32_t>> : detail::DtypeConstant<Dtype::f64_i32> {};
template <>
struct DtypeOf<ValueIndex<std::int32_t, std::int32_t>> : detail::DtypeConstant<Dtype::i32_i32> {};
template <>
struct DtypeOf<ValueIndex<std::int64_t, std::int32_t>> : detail::DtypeConstant<Dtype::i64_i32> {};
template <>
struct DtypeOf<ValueIndex<double, std::int64_t>> : detail::DtypeConstant<Dtype::f64_i64> {};
template <>
struct DtypeOf<ValueIndex<std::int64_t, std::int64_t>> : detail::DtypeConstant<Dtype::i64_i64> {};

template <class T>
inline constexpr Dtype dtype_of = DtypeOf<std::remove_const_t<T>>::value;

}  // namespace tutti
