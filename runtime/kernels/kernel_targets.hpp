// The instruction sets that kernels are compiled for, and the interface between the kernel files and
// kernels.cpp. Internal to the kernel files; knows no op semantics.
#pragma once

// Baseline (any CPU), AVX2 and AVX-512 on x86; baseline and NEON on ARM. Each further set would add a third
// to the compile time, for CPUs that are hardly used for training. Scalable vectors cannot be members of the
// structs we use.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)

// Clang emulates vectors for the baseline, which takes minutes to compile with a sanitizer. g++ 12 uses
// single elements there, and so do sanitizer builds.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define HWY_BROKEN_EMU128 1
#endif
#endif

#include "runtime/kernels/kernels.hpp"

namespace tutti::detail {

// dst[i] = src[i] * factor or src[i] / factor; the integer factor is taken modulo 2^n.
struct ScaleFactor {
  double real;
  std::int64_t integer;
};
using ScaleFn = void (*)(void* dst, const void* src, std::size_t count, ScaleFactor factor);

// Null for pairs that another file implements. `op` is never avg, premul_sum or user.
Kernels select_integer_kernels(Op op, Dtype dtype);  // integers and bool
Kernels select_float_kernels(Op op, Dtype dtype);    // f32, f64
Kernels select_narrow_kernels(Op op, Dtype dtype);   // f16, bf16, f8
Kernels select_wide_kernels(Op op, Dtype dtype);     // complex numbers and pairs
ScaleFn select_integer_multiply(Dtype dtype);
ScaleFn select_float_scale(Dtype dtype, bool divide);
ScaleFn select_narrow_scale(Dtype dtype, bool divide);

}  // namespace tutti::detail
