// Reduction operations: their legality and semantics on each dtype, and user-defined ops. Knows no kernel, no
// algorithm and no group; kernels.hpp implements these definitions.
//
// Semantics of every op on every dtype it is legal on:
//
// Integers.
// - sum and prod wrap modulo 2^n, also on signed types; never undefined. min and max compare as the type
// says.
// - band, bor, bxor act on bits. land, lor and lxor take anything nonzero as true and yield 0 or 1.
// - avg is the wrapped sum, divided by the number of ranks, truncated toward zero.
// - premul_sum multiplies each rank's input by an integer scalar (wrapping), then sums.
//
// f32 and f64.
// - sum and prod compute in the type itself: one rounding (nearest, ties to even) per operation, never fused.
//   A NaN that they make or pass on has an unspecified sign and payload.
// - avg is the sum, divided (not multiplied by a reciprocal) by the number of ranks.
// - premul_sum rounds the scalar to the type, multiplies each input by it, rounds, then sums.
// - min and max: a NaN in any source gives the positive quiet NaN, independent of the order of sources. -0 is
//   less than +0, as in minimum and maximum of IEEE 754-2019.
//
// f16, bf16, f8e4m3, f8e5m2.
// - Each reduction step converts its sources to f32, folds all of them there in source order and rounds once,
//   to nearest even. The accumulator type is f32; a step of n sources rounds once, not n-1 times.
// - Subnormals are kept. Every NaN result is the positive quiet NaN of the format.
// - f16, bf16 and f8e5m2 overflow to infinity. f8e4m3 (the OCP "FN" format: no infinity, one NaN, largest
//   value 448) saturates: larger values, infinity included, become 448; NaN stays NaN. CUDA's own conversion
//   does the same, and one overflow should not turn a gradient into NaN.
// - avg and premul_sum divide and multiply in f32 and round once.
//
// bool. One byte; anything nonzero is true, results are 0 or 1.
// - sum, max, bor and lor are "or"; prod, min, band and land are "and" (as PyTorch has it on NCCL).
// - bxor and lxor are "exactly one of the two".
//
// c64 and c128 (complex numbers of two f32 or f64).
// - sum adds the parts; avg divides both; premul_sum multiplies both by the scalar, which is real.
// - prod is (ac - bd) + (ad + bc)i, each operation rounded, never fused.
// - Complex numbers have no order.
//
// Pairs of a value and an index (f32_i32 and so on).
// - minloc and maxloc take one of their sources whole: the one with the least or the greatest value. Of equal
//   values the least index wins. Values compare as in min and max: -0 is less than +0, and any NaN wins over
//   every number.
//
// opaque. User-defined ops only.
//
// Any dtype. A reduction of one source is a copy: every bit passes, also a NaN's payload and a bool of 2.
//
// avg and premul_sum are sums between ranks: their reduction kernel is the kernel of sum. scale() of
// kernels.hpp multiplies before the sum (premul_sum) or divides after it (avg); the executor decides where.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/status.hpp"
#include "runtime/base/types.hpp"

namespace tutti {

// The classes of dtypes that the legality table distinguishes.
enum class DtypeClass : std::uint8_t { integer, floating, boolean, complex, pair, opaque };
constexpr DtypeClass class_of(Dtype d) {
  if (d <= Dtype::u64) return DtypeClass::integer;
  if (d <= Dtype::f8e5m2) return DtypeClass::floating;
  if (d == Dtype::boolean) return DtypeClass::boolean;
  if (d <= Dtype::c128) return DtypeClass::complex;
  return d == Dtype::opaque ? DtypeClass::opaque : DtypeClass::pair;
}
// Whether an element is one number. Other elements are reduced by the host only.
constexpr bool is_scalar(Dtype d) { return d <= Dtype::boolean; }
// Dtype of the real and the imaginary part of a complex number.
constexpr Dtype part_of(Dtype complex) { return complex == Dtype::c64 ? Dtype::f32 : Dtype::f64; }
constexpr bool is_signed_integer(Dtype d) {
  return d == Dtype::i8 || d == Dtype::i16 || d == Dtype::i32 || d == Dtype::i64;
}
// Floating types narrower than f32, whose reductions accumulate in f32.
constexpr bool is_narrow_float(Dtype d) {
  return d == Dtype::f16 || d == Dtype::bf16 || d == Dtype::f8e4m3 || d == Dtype::f8e5m2;
}

// The legality table: the reason why `op` is not defined on `dtype`; empty if it is legal.
std::string_view why_illegal(Op op, Dtype dtype);
inline bool is_legal(Op op, Dtype dtype) { return why_illegal(op, dtype).empty(); }

// dst[i] = a[i] op b[i] for i < count. dst may be equal to a or to b (never overlap them otherwise).
// Must not throw, block or call tutti. Elementwise: a reduction may be cut anywhere.
using UserReduceFn = void (*)(void* context, void* dst, const void* a, const void* b,
                              std::size_t count) noexcept;

// A user-defined op. A small value: nothing has to be registered, and nothing is kept.
struct UserOp {
  UserReduceFn function = nullptr;
  void* context = nullptr;
  bool is_commutative = false;      // a op b == b op a; if not, sources are combined in rank order only
  std::uint32_t element_bytes = 0;  // of Dtype::opaque
  bool operator==(const UserOp&) const = default;
};
inline constexpr std::uint32_t kMostOpaqueBytes = std::uint32_t{64} << 10U;

// An op with its parameters: all that a reduction needs besides the dtype. A small value.
struct ReduceOp {
  Op op = Op::sum;
  bool is_integer_scalar = false;   // premul_sum: integer_scalar is set, not scalar
  double scalar = 1.0;              // premul_sum on floating dtypes
  std::int64_t integer_scalar = 1;  // premul_sum on integer dtypes, taken modulo 2^n
  UserOp user;                      // for Op::user

  ReduceOp() = default;
  ReduceOp(Op built_in) : op(built_in) {}  // NOLINT(google-explicit-constructor): ReduceOp is an Op with more
  static ReduceOp premul_sum(double scalar);
  static ReduceOp premul_sum_integer(std::int64_t scalar);
  static ReduceOp user_defined(const UserOp& op);

  // Every built-in op commutes bit for bit (the payload of a NaN aside).
  bool is_commutative() const { return op != Op::user || user.is_commutative; }
};

// Checks that the op is legal on the dtype and complete (a scalar of the right kind, a function). Errors:
// invalid_argument with a sentence for the user.
Status check_op(const ReduceOp& op, Dtype dtype);

}  // namespace tutti
