// Elements as the kernels see them: how each format is widened, folded, scaled and stored.
// Knows no memory, block or thread. Compiled for the device and, by any C++ compiler, for the host, where
// tests hold it against runtime/base/reference. The rules are those of runtime/base/ops.hpp, bit for bit.
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define TUTTI_DEVICE __host__ __device__ __forceinline__
#define TUTTI_UNROLL _Pragma("unroll")
#define TUTTI_ROLLED _Pragma("unroll 1")
#else
#define TUTTI_DEVICE inline
#define TUTTI_UNROLL
#define TUTTI_ROLLED
#endif

namespace tutti::cuda {

// The fold of two values. Types share kernels: bool is u8 with logical ops, and signed integers are
// unsigned ones, whose order a flipped sign bit makes.
enum class Fold : uint32_t { sum, prod, min, max, band, bor, bxor, land, lor, lxor };

// The rule of a fold, beside the size of elements.
struct FoldRule {
  Fold fold;
  uint32_t is_signed;  // integers: min and max compare, and division divides, signed values
};
struct ScaleRule {
  uint32_t divides;  // else multiplies
  uint32_t is_signed;
  uint64_t integer;  // factor, or divisor >= 1, of integers
  double wide;       // of f64
  float narrow;      // of f32 and narrower types
};

template <class To, class From>
TUTTI_DEVICE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  return __builtin_bit_cast(To, from);
}

// Unsigned integers of one width: signed ones too, and truth values.
template <class T, class WideT>
struct Integers {
  using Stored = T;
  using Wide = WideT;  // the fold's; its high bits are cut off when stored
  static constexpr Wide kSign = static_cast<Wide>(Wide{1} << (8 * sizeof(T) - 1));

  static TUTTI_DEVICE Wide widen(T stored) { return stored; }
  static TUTTI_DEVICE T store(Wide value) { return static_cast<T>(value); }

  template <Fold fold>
  static TUTTI_DEVICE Wide combine(Wide a, Wide b, FoldRule rule) {
    const Wide flip = rule.is_signed != 0 ? kSign : 0;
    switch (fold) {
      case Fold::sum:
        return a + b;
      case Fold::prod:
        return a * b;
      case Fold::min:
        return (a ^ flip) < (b ^ flip) ? a : b;
      case Fold::max:
        return (a ^ flip) > (b ^ flip) ? a : b;
      case Fold::band:
        return a & b;
      case Fold::bor:
        return a | b;
      case Fold::bxor:
        return a ^ b;
      case Fold::land:
        return a != 0 && b != 0 ? 1 : 0;
      case Fold::lor:
        return a != 0 || b != 0 ? 1 : 0;
      case Fold::lxor:
        return (a != 0) != (b != 0) ? 1 : 0;
    }
    return a;
  }
  static constexpr bool kHasBits = true;  // also those folds that are not arithmetic

  static TUTTI_DEVICE T scale(T stored, const ScaleRule& rule) {
    const Wide value = stored;
    const auto by = static_cast<Wide>(rule.integer);
    if (rule.divides == 0) return static_cast<T>(value * by);
    // Divides the magnitude, which truncates toward zero. The divisor may be wider than the element.
    const bool is_negative = rule.is_signed != 0 && (value & kSign) != 0;
    const Wide magnitude = is_negative ? static_cast<T>(Wide{0} - value) : value;
    const Wide quotient = magnitude / by;
    return static_cast<T>(is_negative ? Wide{0} - quotient : quotient);
  }
};

// The folds of values that are computed in T, float or double.
template <class T>
struct Floats {
  static TUTTI_DEVICE T quiet_nan() {
    if constexpr (sizeof(T) == 4) return bits_as<T>(uint32_t{0x7FC00000});
    if constexpr (sizeof(T) == 8) return bits_as<T>(uint64_t{0x7FF8000000000000});
  }
  static TUTTI_DEVICE bool is_negative(T value) {
    if constexpr (sizeof(T) == 4) return (bits_as<uint32_t>(value) >> 31U) != 0;
    if constexpr (sizeof(T) == 8) return (bits_as<uint64_t>(value) >> 63U) != 0;
  }
  // NOLINTNEXTLINE(misc-redundant-expression): a NaN alone differs from itself
  static TUTTI_DEVICE bool is_nan(T value) { return value != value; }
  template <Fold fold>
  static TUTTI_DEVICE T combine(T a, T b, FoldRule) {
    switch (fold) {
      case Fold::prod:
        return a * b;
      case Fold::min:
        if (is_nan(a) || is_nan(b)) return quiet_nan();
        return a < b || (a == b && is_negative(a)) ? a : b;
      case Fold::max:
        if (is_nan(a) || is_nan(b)) return quiet_nan();
        return a > b || (a == b && is_negative(b)) ? a : b;
      default:
        return a + b;
    }
  }
  static constexpr bool kHasBits = false;
};

struct F32 : Floats<float> {
  using Stored = uint32_t;
  using Wide = float;
  static TUTTI_DEVICE Wide widen(Stored stored) { return bits_as<float>(stored); }
  static TUTTI_DEVICE Stored store(Wide value) { return bits_as<uint32_t>(value); }
  static TUTTI_DEVICE Stored scale(Stored stored, const ScaleRule& rule) {
    const float value = widen(stored);
    return store(rule.divides != 0 ? value / rule.narrow : value * rule.narrow);
  }
};

struct F64 : Floats<double> {
  using Stored = uint64_t;
  using Wide = double;
  static TUTTI_DEVICE Wide widen(Stored stored) { return bits_as<double>(stored); }
  static TUTTI_DEVICE Stored store(Wide value) { return bits_as<uint64_t>(value); }
  static TUTTI_DEVICE Stored scale(Stored stored, const ScaleRule& rule) {
    const double value = widen(stored);
    return store(rule.divides != 0 ? value / rule.wide : value * rule.wide);
  }
};

// f16, bf16 and f8: widened to f32 exactly, rounded once to nearest even. `is_finite`: no infinity, one NaN,
// overflow saturates (f8e4m3).
template <class T, int exponent_bits, int mantissa_bits, bool is_finite>
struct Narrow : Floats<float> {
  using Stored = T;
  using Wide = float;
  static constexpr uint32_t kSign = 1U << (exponent_bits + mantissa_bits);
  static constexpr uint32_t kBias = (1U << (exponent_bits - 1)) - 1;
  static constexpr uint32_t kInfinity = ((1U << exponent_bits) - 1) << mantissa_bits;
  static constexpr uint32_t kNan = is_finite ? kSign - 1 : kInfinity | (1U << (mantissa_bits - 1));
  static constexpr uint32_t kLargest = is_finite ? kNan - 1 : kInfinity;  // what overflow becomes
  static constexpr uint32_t kDropped = 23 - mantissa_bits;                // bits of an f32's mantissa
  static constexpr bool kHasRangeOfF32 = exponent_bits == 8;

  static TUTTI_DEVICE float widen(T stored) {
#if defined(__CUDA_ARCH__)
    if constexpr (exponent_bits == 5 && mantissa_bits == 10) {
      float value;
      asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored));
      return value;
    }
#if __CUDA_ARCH__ >= 890
    if constexpr (sizeof(T) == 1) {  // f16 holds every value of f8
      uint32_t pair;
      if constexpr (is_finite) {
        asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(uint16_t{stored}));
      } else {
        asm("cvt.rn.f16x2.e5m2x2 %0, %1;" : "=r"(pair) : "h"(uint16_t{stored}));
      }
      float value;
      asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(static_cast<uint16_t>(pair)));
      return value;
    }
#endif
#endif
    const uint32_t sign = (stored & kSign) << (31 - exponent_bits - mantissa_bits);
    const uint32_t magnitude = stored & (kSign - 1);
    uint32_t bits = magnitude << kDropped;
    if constexpr (!kHasRangeOfF32) {
      // The exponent is read with the bias of f32 and put right by a product, which normalises subnormals.
      bits = bits_as<uint32_t>(bits_as<float>(bits) * bits_as<float>((254 - kBias) << 23U));
      if (is_finite ? magnitude == kNan : magnitude >= kInfinity)
        bits |= 0x7F800000U | (magnitude << kDropped);
    }
    return bits_as<float>(bits | sign);
  }

  static TUTTI_DEVICE T store(float value) {
    const uint32_t bits = bits_as<uint32_t>(value);
    const uint32_t sign = (bits >> (31 - exponent_bits - mantissa_bits)) & kSign;
    const uint32_t magnitude = bits & 0x7FFFFFFFU;
    if (magnitude > 0x7F800000U) return static_cast<T>(kNan);
#if defined(__CUDA_ARCH__)
    if constexpr (exponent_bits == 5 && mantissa_bits == 10) {
      uint16_t code;
      asm("cvt.rn.f16.f32 %0, %1;" : "=h"(code) : "f"(value));
      return code;
    }
#if __CUDA_ARCH__ >= 890
    if constexpr (sizeof(T) == 1) {
      uint16_t pair;
      if constexpr (is_finite) {
        asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(value));
      } else {
        // The instruction saturates; what would round past the largest value, 57344, is infinity here.
        asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0F), "f"(value));
        if (magnitude >= bits_as<uint32_t>(61440.0F)) pair = static_cast<uint16_t>(sign | kInfinity);
      }
      return static_cast<T>(pair);
    }
#endif
#endif
    uint32_t code = 0;
    if (!kHasRangeOfF32 && magnitude < (128 - kBias) << 23U) {
      // A subnormal: the sum with a value whose last bit is the smallest code rounds it to one.
      constexpr uint32_t kAligned = (128 - kBias + kDropped) << 23U;
      code = bits_as<uint32_t>(bits_as<float>(magnitude) + bits_as<float>(kAligned)) - kAligned;
    } else {
      const uint32_t rebiased = magnitude - ((127 - kBias) << 23U);
      code = (rebiased + (1U << (kDropped - 1)) - 1 + ((rebiased >> kDropped) & 1U)) >> kDropped;
      code = code > kLargest ? kLargest : code;
    }
    return static_cast<T>(sign | code);
  }

  static TUTTI_DEVICE T scale(T stored, const ScaleRule& rule) {
    const float value = widen(stored);
    return store(rule.divides != 0 ? value / rule.narrow : value * rule.narrow);
  }
};

using F16 = Narrow<uint16_t, 5, 10, false>;
using Bf16 = Narrow<uint16_t, 8, 7, false>;
using F8e4m3 = Narrow<uint8_t, 4, 3, true>;
using F8e5m2 = Narrow<uint8_t, 5, 2, false>;

using U8 = Integers<uint8_t, uint32_t>;
using U16 = Integers<uint16_t, uint32_t>;
using U32 = Integers<uint32_t, uint32_t>;
using U64 = Integers<uint64_t, uint64_t>;

// Calls `use.template operator()<fold>()` for the rule's fold, so that a loop over elements has no branch on
// it.
template <class Element, class Use>
TUTTI_DEVICE void with_fold(Fold fold, Use use) {
  switch (fold) {
    case Fold::sum:
      return use.template operator()<Fold::sum>();
    case Fold::prod:
      return use.template operator()<Fold::prod>();
    case Fold::min:
      return use.template operator()<Fold::min>();
    case Fold::max:
      return use.template operator()<Fold::max>();
    default:
      break;
  }
  if constexpr (Element::kHasBits) {
    switch (fold) {
      case Fold::band:
        return use.template operator()<Fold::band>();
      case Fold::bor:
        return use.template operator()<Fold::bor>();
      case Fold::bxor:
        return use.template operator()<Fold::bxor>();
      case Fold::land:
        return use.template operator()<Fold::land>();
      case Fold::lor:
        return use.template operator()<Fold::lor>();
      default:
        return use.template operator()<Fold::lxor>();
    }
  }
}

// Every kind of element that kernels are made for: X(name, type).
#define TUTTI_DEVICE_ELEMENTS(X) \
  X(u8, U8)                      \
  X(u16, U16)                    \
  X(u32, U32)                    \
  X(u64, U64) X(f32, F32) X(f64, F64) X(f16, F16) X(bf16, Bf16) X(f8e4m3, F8e4m3) X(f8e5m2, F8e5m2)

}  // namespace tutti::cuda
