// The scalar reference of the reduction kernels, following the text of ops.hpp line by line.
// Knows no vectors; narrow formats are decoded and encoded by arithmetic on values, not on bits.
#include "runtime/kernels/reference.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>
#include <vector>

namespace tutti {
namespace {

// One sign bit, then the exponent, then the mantissa.
struct Format {
  int exponent_bits;
  int mantissa_bits;
  bool is_finite_only;  // no infinity; only the all-ones magnitude is NaN; overflow saturates

  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int sign_shift() const { return exponent_bits + mantissa_bits; }
  int largest_exponent_field() const { return (1 << exponent_bits) - 1; }
  unsigned infinity_code() const { return static_cast<unsigned>(largest_exponent_field()) << mantissa_bits; }
  unsigned nan_code() const {
    return is_finite_only ? (1u << sign_shift()) - 1 : infinity_code() | (1u << (mantissa_bits - 1));
  }
};

Format format_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return {5, 10, false};
    case Dtype::bf16:
      return {8, 7, false};
    case Dtype::f8e4m3:
      return {4, 3, true};
    default:
      return {5, 2, false};
  }
}

double decode_magnitude(Format format, unsigned magnitude) {
  const int exponent = static_cast<int>(magnitude >> format.mantissa_bits);
  const int mantissa = static_cast<int>(magnitude & ((1u << format.mantissa_bits) - 1));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  if (format.is_finite_only && magnitude == format.nan_code()) return nan;
  if (!format.is_finite_only && exponent == format.largest_exponent_field()) {
    return mantissa == 0 ? std::numeric_limits<double>::infinity() : nan;
  }
  if (exponent == 0) return std::ldexp(mantissa, 1 - format.bias() - format.mantissa_bits);
  return std::ldexp((1 << format.mantissa_bits) + mantissa, exponent - format.bias() - format.mantissa_bits);
}

unsigned encode_magnitude(Format format, double value) {
  const unsigned largest = format.is_finite_only ? format.nan_code() - 1 : format.infinity_code();
  if (std::isinf(value)) return largest;
  // The distance of neighbouring codes around `value`; below the smallest normal exponent it stays the same.
  const int smallest_exponent = 1 - format.bias();
  int exponent = value == 0 ? smallest_exponent : std::max(std::ilogb(value), smallest_exponent);
  const double unit = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double units = std::nearbyint(value / unit);  // ties to even; the division by a power of two is exact
  // 2^mantissa units are the first code of a normal exponent; fewer are a subnormal, twice as many the next
  // exponent.
  const double code = std::ldexp(exponent - smallest_exponent, format.mantissa_bits) + units;
  return code > largest ? largest : static_cast<unsigned>(code);
}

template <class T>
T load(const void* from, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + index * sizeof(T), sizeof(T));
  return value;
}
template <class T>
void store(void* to, std::size_t index, T value) {
  std::memcpy(static_cast<std::byte*>(to) + index * sizeof(T), &value, sizeof(T));
}

template <class T>
T combine_integers(Op op, T a, T b) {
  using Wide =
      std::uint64_t;  // unsigned, so that wrapping is defined; the low bits are right for signed types too
  switch (op) {
    case Op::prod:
      return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
    case Op::min:
      return a < b ? a : b;
    case Op::max:
      return a > b ? a : b;
    case Op::band:
      return static_cast<T>(a & b);
    case Op::bor:
      return static_cast<T>(a | b);
    case Op::bxor:
      return static_cast<T>(a ^ b);
    case Op::land:
      return static_cast<T>(a != 0 && b != 0);
    case Op::lor:
      return static_cast<T>(a != 0 || b != 0);
    case Op::lxor:
      return static_cast<T>((a != 0) != (b != 0));
    default:  // sum, avg, premul_sum
      return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  }
}

template <class T>
T combine_floats(Op op, T a, T b) {
  const bool is_extremum = op == Op::min || op == Op::max;
  if (is_extremum && (std::isnan(a) || std::isnan(b))) return std::numeric_limits<T>::quiet_NaN();
  switch (op) {
    case Op::prod:
      return a * b;
    case Op::min:
      if (a == b) return std::signbit(a) ? a : b;
      return a < b ? a : b;
    case Op::max:
      if (a == b) return std::signbit(a) ? b : a;
      return a > b ? a : b;
    default:
      return a + b;
  }
}

std::uint8_t combine_truths(Op op, std::uint8_t a, std::uint8_t b) {
  switch (op) {
    case Op::prod:
    case Op::min:
    case Op::band:
    case Op::land:
      return a != 0 && b != 0;
    case Op::bxor:
    case Op::lxor:
      return (a != 0) != (b != 0);
    default:
      return a != 0 || b != 0;
  }
}

// Calls `use` with a value of the C++ type of an integer dtype.
template <class Use>
void with_integer(Dtype dtype, Use use) {
  switch (dtype) {
    case Dtype::i8:
      return use(std::int8_t{0});
    case Dtype::u8:
      return use(std::uint8_t{0});
    case Dtype::i16:
      return use(std::int16_t{0});
    case Dtype::u16:
      return use(std::uint16_t{0});
    case Dtype::i32:
      return use(std::int32_t{0});
    case Dtype::u32:
      return use(std::uint32_t{0});
    case Dtype::i64:
      return use(std::int64_t{0});
    default:
      return use(std::uint64_t{0});
  }
}

template <class T, class Combine>
void fold_element(void* dst, std::span<const void* const> sources, std::size_t index, Combine combine) {
  T result = load<T>(sources[0], index);
  for (std::size_t k = 1; k < sources.size(); ++k) result = combine(result, load<T>(sources[k], index));
  store<T>(dst, index, result);
}

// One complex number, real part first, after the definition of product and sum.
template <class T>
void fold_complex(Op op, void* dst, std::span<const void* const> sources, std::size_t index) {
  T real = load<T>(sources[0], 2 * index), imaginary = load<T>(sources[0], 2 * index + 1);
  for (std::size_t k = 1; k < sources.size(); ++k) {
    const T a = real, b = imaginary;
    const T c = load<T>(sources[k], 2 * index), d = load<T>(sources[k], 2 * index + 1);
    real = op == Op::prod ? a * c - b * d : a + c;
    imaginary = op == Op::prod ? a * d + b * c : b + d;
  }
  store(dst, 2 * index, real);
  store(dst, 2 * index + 1, imaginary);
}

// The source that a pair is taken from, by a key that puts the winner first. The value lies before the index,
// at a multiple of its own length, as in C.
template <class Value, class Index>
void fold_pair(Op op, void* dst, std::span<const void* const> sources, std::size_t index) {
  constexpr std::size_t kBytes = 2 * std::max(sizeof(Value), sizeof(Index));
  const auto at = [&](std::size_t k) { return static_cast<const std::byte*>(sources[k]) + index * kBytes; };
  const auto value_of = [&](std::size_t k) { return load<Value>(at(k), 0); };
  const auto index_of = [&](std::size_t k) { return load<Index>(at(k) + sizeof(Value), 0); };
  const auto beats = [&](std::size_t a, std::size_t b) {
    const Value x = value_of(a), y = value_of(b);
    int order = x < y ? -1 : (y < x ? 1 : 0);
    if constexpr (std::is_floating_point_v<Value>) {
      if (std::isnan(x) != std::isnan(y)) return std::isnan(x);
      if (!std::isnan(x) && order == 0)
        order = static_cast<int>(std::signbit(y)) - static_cast<int>(std::signbit(x));
    }
    if (order != 0) return (op == Op::minloc) == (order < 0);
    return index_of(a) < index_of(b);
  };
  std::size_t winner = 0;
  for (std::size_t k = 1; k < sources.size(); ++k) {
    if (beats(k, winner)) winner = k;
  }
  std::array<std::byte, kBytes> element;
  std::memcpy(element.data(), at(winner), kBytes);
  std::memcpy(static_cast<std::byte*>(dst) + index * kBytes, element.data(), kBytes);
}

void reduce_wide_element(Op op, Dtype dtype, void* dst, std::span<const void* const> sources, std::size_t i) {
  switch (dtype) {
    case Dtype::c64:
      return fold_complex<float>(op, dst, sources, i);
    case Dtype::c128:
      return fold_complex<double>(op, dst, sources, i);
    case Dtype::f32_i32:
      return fold_pair<float, std::int32_t>(op, dst, sources, i);
    case Dtype::f64_i32:
      return fold_pair<double, std::int32_t>(op, dst, sources, i);
    case Dtype::i32_i32:
      return fold_pair<std::int32_t, std::int32_t>(op, dst, sources, i);
    case Dtype::i64_i32:
      return fold_pair<std::int64_t, std::int32_t>(op, dst, sources, i);
    case Dtype::f64_i64:
      return fold_pair<double, std::int64_t>(op, dst, sources, i);
    default:
      return fold_pair<std::int64_t, std::int64_t>(op, dst, sources, i);
  }
}

float load_narrow(Dtype dtype, const void* from, std::size_t index) {
  return decode_narrow(
      dtype, size_of(dtype) == 1 ? load<std::uint8_t>(from, index) : load<std::uint16_t>(from, index));
}
void store_narrow(Dtype dtype, void* to, std::size_t index, float value) {
  const std::uint16_t code = encode_narrow(dtype, value);
  if (size_of(dtype) == 1) return store(to, index, static_cast<std::uint8_t>(code));
  store(to, index, code);
}

void reduce_element(const ReduceOp& op, Dtype dtype, void* dst, std::span<const void* const> sources,
                    std::size_t i) {
  if (!is_scalar(dtype)) {
    reduce_wide_element(op.op, dtype, dst, sources, i);
  } else if (dtype == Dtype::f32) {
    fold_element<float>(dst, sources, i, [&](float a, float b) { return combine_floats(op.op, a, b); });
  } else if (dtype == Dtype::f64) {
    fold_element<double>(dst, sources, i, [&](double a, double b) { return combine_floats(op.op, a, b); });
  } else if (is_narrow_float(dtype)) {
    float result = load_narrow(dtype, sources[0], i);
    for (std::size_t k = 1; k < sources.size(); ++k) {
      result = combine_floats(op.op, result, load_narrow(dtype, sources[k], i));
    }
    store_narrow(dtype, dst, i, result);
  } else if (dtype == Dtype::boolean) {
    fold_element<std::uint8_t>(dst, sources, i,
                               [&](std::uint8_t a, std::uint8_t b) { return combine_truths(op.op, a, b); });
  } else {
    with_integer(dtype, [&](auto type) {
      using T = decltype(type);
      fold_element<T>(dst, sources, i, [&](T a, T b) { return combine_integers<T>(op.op, a, b); });
    });
  }
}

// One user-defined op per element, through a copy of the accumulator, as plain as it can be.
void reduce_user_element(const ReduceOp& op, std::size_t element_bytes, void* dst,
                         std::span<const void* const> sources, std::size_t i) {
  const auto at = [&](std::size_t k) {
    return static_cast<const std::byte*>(sources[k]) + i * element_bytes;
  };
  std::vector<std::byte> result(element_bytes), next(element_bytes);
  std::memcpy(result.data(), at(0), element_bytes);
  for (std::size_t k = 1; k < sources.size(); ++k) {
    op.user.function(op.user.context, next.data(), result.data(), at(k), 1);
    result.swap(next);
  }
  std::memcpy(static_cast<std::byte*>(dst) + i * element_bytes, result.data(), element_bytes);
}

template <class T>
T scale_value(const ReduceOp& op, int group_size, T value) {
  if constexpr (std::is_floating_point_v<T>) {
    return op.op == Op::avg ? value / static_cast<T>(group_size) : value * static_cast<T>(op.scalar);
  } else {
    if (op.op == Op::premul_sum) {
      return combine_integers<T>(Op::prod, value, static_cast<T>(op.integer_scalar));
    }
    // Division in a type that holds both the value and the group size; / truncates toward zero.
    using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
    return static_cast<T>(static_cast<Wide>(value) / static_cast<Wide>(group_size));
  }
}

}  // namespace

float decode_narrow(Dtype dtype, std::uint16_t code) {
  const Format format = format_of(dtype);
  const unsigned sign = 1u << format.sign_shift();
  const double magnitude = decode_magnitude(format, code & (sign - 1));
  return static_cast<float>((code & sign) != 0 ? -magnitude : magnitude);
}

std::uint16_t encode_narrow(Dtype dtype, float value) {
  const Format format = format_of(dtype);
  if (std::isnan(value)) return static_cast<std::uint16_t>(format.nan_code());
  const unsigned sign = std::signbit(value) ? 1u << format.sign_shift() : 0;
  return static_cast<std::uint16_t>(sign | encode_magnitude(format, std::fabs(static_cast<double>(value))));
}

void reduce_reference(const ReduceOp& op, Dtype dtype, void* dst, std::span<const void* const> sources,
                      std::size_t count) {
  TUTTI_ASSERT(!sources.empty(), "a reduction has at least one source");
  const std::size_t element_bytes = dtype == Dtype::opaque ? op.user.element_bytes : size_of(dtype);
  if (sources.size() == 1) {  // a copy keeps every bit; of a NaN too
    if (dst != sources[0] && count > 0) std::memcpy(dst, sources[0], count * element_bytes);
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    if (op.op == Op::user) {
      reduce_user_element(op, element_bytes, dst, sources, i);
    } else {
      reduce_element(op, dtype, dst, sources, i);
    }
  }
}

void scale_reference(const ReduceOp& op, int group_size, Dtype dtype, void* dst, const void* src,
                     std::size_t count) {
  if (class_of(dtype) == DtypeClass::complex)
    return scale_reference(op, group_size, part_of(dtype), dst, src, 2 * count);
  for (std::size_t i = 0; i < count; ++i) {
    if (dtype == Dtype::f32) {
      store(dst, i, scale_value(op, group_size, load<float>(src, i)));
    } else if (dtype == Dtype::f64) {
      store(dst, i, scale_value(op, group_size, load<double>(src, i)));
    } else if (is_narrow_float(dtype)) {
      store_narrow(dtype, dst, i, scale_value(op, group_size, load_narrow(dtype, src, i)));
    } else {
      with_integer(dtype, [&](auto type) {
        store(dst, i, scale_value(op, group_size, load<decltype(type)>(src, i)));
      });
    }
  }
}

}  // namespace tutti
