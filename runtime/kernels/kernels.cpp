// Look-up of kernels, and those that need no vectors of their own: user-defined ops, integer division, large
// copies. Knows no vector type; kernels_copy, kernels_float, kernels_integer and kernels_narrow do. Elements
// of several numbers are in kernels_wide.
#include "runtime/kernels/kernels.hpp"

#include "runtime/kernels/kernel_targets.hpp"

#include <hwy/cache_control.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "runtime/base/relax.hpp"

namespace tutti {
namespace {

// Folds a user-defined op. Up to two sources go straight to dst, which the function may alias. More are
// folded in blocks on the stack: dst may be a later source, and must not be written before that is read.
template <std::size_t kBlockBytes>
void fold_user_elements(const UserOp* user, std::size_t element_bytes, void* dst, const void* const* sources,
                        std::size_t source_count, std::size_t count) {
  if (source_count == 1) return copy_bytes(dst, sources[0], count * element_bytes);
  if (source_count == 2) return user->function(user->context, dst, sources[0], sources[1], count);
  alignas(64) std::byte block[kBlockBytes];
  const std::size_t most = kBlockBytes / element_bytes;
  for (std::size_t first = 0; first < count; first += most) {
    const std::size_t block_count = std::min(count - first, most);
    const std::size_t offset_bytes = first * element_bytes;
    const auto at = [&](std::size_t k) { return static_cast<const std::byte*>(sources[k]) + offset_bytes; };
    user->function(user->context, block, at(0), at(1), block_count);
    for (std::size_t k = 2; k < source_count; ++k) {
      user->function(user->context, block, block, at(k), block_count);
    }
    std::memcpy(static_cast<std::byte*>(dst) + offset_bytes, block, block_count * element_bytes);
  }
}

// Small enough for any stack, large enough to amortise the calls.
constexpr std::size_t kUserBlockBytes = 4096;

template <std::size_t kElementBytes>
void fold_user(const UserOp* user, void* dst, const void* const* sources, std::size_t source_count,
               std::size_t count) {
  fold_user_elements<kUserBlockBytes>(user, kElementBytes, dst, sources, source_count, count);
}

void fold_opaque(const UserOp* user, void* dst, const void* const* sources, std::size_t source_count,
                 std::size_t count) {
  const auto fold_elements = user->element_bytes <= kUserBlockBytes ? fold_user_elements<kUserBlockBytes>
                                                                    : fold_user_elements<kMostOpaqueBytes>;
  fold_elements(user, user->element_bytes, dst, sources, source_count, count);
}

KernelFn select_user_kernel(Dtype dtype) {
  switch (size_of(dtype)) {
    case 0:
      return fold_opaque;
    case 1:
      return fold_user<1>;
    case 2:
      return fold_user<2>;
    case 4:
      return fold_user<4>;
    case 8:
      return fold_user<8>;
    default:
      return fold_user<16>;
  }
}

// Truncating division by a number that may exceed the range of T (200 ranks of i8). Elements go through
// memcpy because pointers need not be aligned. Up to 32 bits the quotient in double, cut off, is exact.
template <class T>
void divide_integers(void* dst, const void* src, std::size_t count, int divisor) {
  auto* to = static_cast<std::byte*>(dst);
  const auto* from = static_cast<const std::byte*>(src);
  for (std::size_t i = 0; i < count; ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    if constexpr (sizeof(T) <= 4) {
      value = static_cast<T>(static_cast<double>(value) / static_cast<double>(divisor));
    } else {
      value = static_cast<T>(value / static_cast<T>(divisor));
    }
    std::memcpy(to + i * sizeof(T), &value, sizeof(T));
  }
}

void divide_integers_of(Dtype dtype, void* dst, const void* src, std::size_t count, int divisor) {
  switch (dtype) {
    case Dtype::i8:
      return divide_integers<std::int8_t>(dst, src, count, divisor);
    case Dtype::u8:
      return divide_integers<std::uint8_t>(dst, src, count, divisor);
    case Dtype::i16:
      return divide_integers<std::int16_t>(dst, src, count, divisor);
    case Dtype::u16:
      return divide_integers<std::uint16_t>(dst, src, count, divisor);
    case Dtype::i32:
      return divide_integers<std::int32_t>(dst, src, count, divisor);
    case Dtype::u32:
      return divide_integers<std::uint32_t>(dst, src, count, divisor);
    case Dtype::i64:
      return divide_integers<std::int64_t>(dst, src, count, divisor);
    default:
      return divide_integers<std::uint64_t>(dst, src, count, divisor);
  }
}

// Copies with stores that bypass the caches; the caller orders them with FlushStream() when it is done.
void stream_bytes(std::byte* to, const std::byte* from, std::size_t size_bytes) {
#if defined(__SSE2__)
  const std::size_t head_bytes = -reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
  if (size_bytes < head_bytes + kLineBytes) return copy_bytes(to, from, size_bytes);
  std::memcpy(to, from, head_bytes);
  std::size_t i = head_bytes;
  // Whole lines: a partly written line would have to be fetched. Wider stores gain nothing, the limit is
  // memory.
  for (; size_bytes - i >= kLineBytes; i += kLineBytes) {
    for (std::size_t j = i; j < i + kLineBytes; j += sizeof(__m128i)) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + j),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j)));
    }
  }
  std::memcpy(to + i, from + i, size_bytes - i);
#else
  copy_bytes(to, from, size_bytes);
#endif
}

}  // namespace

Kernels select_kernels(Op op, Dtype dtype) {
  TUTTI_ASSERT(is_legal(op, dtype), "check_op() comes before select_kernels()");
  if (op == Op::user) return {select_user_kernel(dtype), nullptr};
  if (op == Op::avg || op == Op::premul_sum) op = Op::sum;
  Kernels kernels;
  if (!is_scalar(dtype)) {
    kernels = detail::select_wide_kernels(op, dtype);
  } else if (dtype == Dtype::f32 || dtype == Dtype::f64) {
    kernels = detail::select_float_kernels(op, dtype);
  } else if (is_narrow_float(dtype)) {
    kernels = detail::select_narrow_kernels(op, dtype);
  } else {
    kernels = detail::select_integer_kernels(op, dtype);
  }
  TUTTI_ASSERT(kernels.fold != nullptr, "every legal pair has a kernel");
  return kernels;
}

void reduce(const ReduceOp& op, Dtype dtype, void* dst, std::span<const void* const> sources,
            std::size_t count) {
  TUTTI_ASSERT(!sources.empty(), "a reduction has at least one source");
  select_kernel(op.op, dtype)(&op.user, dst, sources.data(), sources.size(), count);
}

void scale(const ReduceOp& op, int group_size, Dtype dtype, void* dst, const void* src, std::size_t count) {
  TUTTI_ASSERT(scales_before(op.op) || scales_after(op.op), "only avg and premul_sum scale");
  TUTTI_ASSERT(is_legal(op.op, dtype), "check_op() comes before scale()");
  const bool divide = scales_after(op.op);
  TUTTI_ASSERT(!divide || group_size > 0, "a group has at least one rank");
  const detail::ScaleFactor factor{divide ? static_cast<double>(group_size) : op.scalar, op.integer_scalar};
  if (class_of(dtype) == DtypeClass::integer) {
    if (divide) return divide_integers_of(dtype, dst, src, count, group_size);
    return detail::select_integer_multiply(dtype)(dst, src, count, factor);
  }
  if (class_of(dtype) == DtypeClass::complex)
    return detail::select_float_scale(part_of(dtype), divide)(dst, src, 2 * count, factor);
  const auto function = is_narrow_float(dtype) ? detail::select_narrow_scale(dtype, divide)
                                               : detail::select_float_scale(dtype, divide);
  function(dst, src, count, factor);
}

void copy_bytes_streaming(void* dst, const void* src, std::size_t size_bytes) {
  if (dst == src) return;
  stream_bytes(static_cast<std::byte*>(dst), static_cast<const std::byte*>(src), size_bytes);
  hwy::FlushStream();  // orders streaming stores before later ones, which the memory model does not do by
                       // itself
}

std::string_view kernel_target() {
  const auto names = supported_kernel_targets();
  return names.front();
}

std::vector<std::string_view> supported_kernel_targets() {
  std::vector<std::string_view> names;
  // Lower bits are better targets, so the order is best first.
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    names.emplace_back(hwy::TargetName(target));
  }
  return names;
}

bool set_kernel_target_for_test(std::string_view name) {
  hwy::SetSupportedTargetsForTest(0);
  bool is_found = name.empty();
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (name != hwy::TargetName(target)) continue;
    hwy::SetSupportedTargetsForTest(target);
    is_found = true;
    break;
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return is_found;
}

}  // namespace tutti
