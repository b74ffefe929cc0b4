// CPU reduction, scaling and copy kernels, chosen at run time for the widest vectors this CPU has. Knows no
// schedule, group or transport: it takes pointers, an element count, a dtype and an op.
//
// Common rules: pointers need no alignment. `dst` may be identical to any one (or several) of the sources;
// any other overlap is an error of the caller that is not detected. Nothing allocates, throws or locks. Every
// function may be called from any thread. ops.hpp defines results bit for bit (except NaN payloads of
// floating sums); they are the same on every CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "runtime/base/ops.hpp"

namespace tutti {

// dst[i] = ((s0[i] op s1[i]) op s2[i]) ... for i < count, in exactly this order; source_count >= 1, and one
// source is a copy. The accumulator between the sources has the dtype itself; f32 for f16, bf16 and f8. For
// those, a reduction of three sources is NOT two reductions of two. `user` is read by kernels of Op::user
// only, which call it for whole elements.
using KernelFn = void (*)(const UserOp* user, void* dst, const void* const* sources, std::size_t source_count,
                          std::size_t count);

// The same, stored to several destinations: to the first cached_count of them as usual, to the others with
// non-temporal stores. Use those for results longer than this core's share of the cache. place_count >= 1. A
// destination may be identical to a source; it belongs to the first group, because its lines are in this
// core's cache by then. All non-temporal destinations have the same offset from a cache line. The stores are
// ordered before every later store of this thread when the call returns.
using StreamKernelFn = void (*)(void* const* places, std::size_t place_count, std::size_t cached_count,
                                const void* const* sources, std::size_t source_count, std::size_t count);

struct Kernels {
  KernelFn fold = nullptr;
  StreamKernelFn stream = nullptr;  // null where this CPU has no such stores for the dtype, and for Op::user
};

// The kernels of a legal pair; look them up once, then call them without any branch on op or dtype.
// avg and premul_sum give the kernels of sum. An illegal pair is a broken invariant: check_op() comes first.
Kernels select_kernels(Op op, Dtype dtype);
inline KernelFn select_kernel(Op op, Dtype dtype) { return select_kernels(op, dtype).fold; }

// One reduction, looked up and run: for code outside hot paths.
void reduce(const ReduceOp& op, Dtype dtype, void* dst, std::span<const void* const> sources,
            std::size_t count);

// The part of avg and premul_sum that is not a sum:
//   premul_sum: dst[i] = src[i] * scalar, applied to each rank's input before the first sum;
//   avg:        dst[i] = src[i] / group_size, applied to the complete sum (integers truncate toward zero).
// dst == src is in place. For other ops there is nothing to scale and the call is a broken invariant.
// Cost: one pass; integer division is several times slower than the memory it reads.
void scale(const ReduceOp& op, int group_size, Dtype dtype, void* dst, const void* src, std::size_t count);
constexpr bool scales_before(Op op) { return op == Op::premul_sum; }
constexpr bool scales_after(Op op) { return op == Op::avg; }

// dst[i] = src[i], `count` elements that do not overlap: from f32 to the narrow float, rounded as ops.hpp says of
// results, and back, which is exact.
using ConvertFn = void (*)(void* dst, const void* src, std::size_t count);
struct Conversions {
  ConvertFn narrow = nullptr;
  ConvertFn widen = nullptr;
};
// Of f16, bf16, f8e4m3 or f8e5m2. Another dtype is a broken invariant.
Conversions select_conversions(Dtype narrow);

namespace detail {
inline constexpr std::size_t kLeastInOrderBytes = 129, kMostInOrderBytes = 4096;
// At least kLeastInOrderBytes.
void copy_in_order(void* dst, const void* src, std::size_t size_bytes);
}  // namespace detail

// Copies; dst == src does nothing, other overlap is not allowed. Few bytes go without a call. Copies of two
// lines to a page use the widest stores in order of address. That is faster than memcpy, which begins at both
// ends, where another core has read the lines last.
inline void copy_bytes(void* dst, const void* src, std::size_t size_bytes) {
  const auto copy_ends = [&](auto* word) {
    // Two moves that may overlap. All is read before anything is written.
    std::remove_pointer_t<decltype(word)> head, tail;
    const std::size_t at = size_bytes - sizeof head;
    std::memcpy(&head, src, sizeof head);
    std::memcpy(&tail, static_cast<const std::byte*>(src) + at, sizeof tail);
    std::memcpy(dst, &head, sizeof head);
    std::memcpy(static_cast<std::byte*>(dst) + at, &tail, sizeof tail);
  };
  struct Bytes16 {
    std::uint64_t low, high;
  };
  if (dst == src) return;  // others may be reading it
  if (size_bytes >= detail::kLeastInOrderBytes && size_bytes <= detail::kMostInOrderBytes) {
    detail::copy_in_order(dst, src, size_bytes);
  } else if (size_bytes > 32 || size_bytes < 4) {
    if (size_bytes != 0) std::memcpy(dst, src, size_bytes);
  } else if (size_bytes >= 16) {
    copy_ends(static_cast<Bytes16*>(nullptr));
  } else if (size_bytes >= 8) {
    copy_ends(static_cast<std::uint64_t*>(nullptr));
  } else {
    copy_ends(static_cast<std::uint32_t*>(nullptr));
  }
}
// The same with non-temporal stores: for copies larger than this core's share of the cache that it will not
// read soon. The stores are ordered before every later store of this thread when the call returns, so a
// release store can make them visible.
void copy_bytes_streaming(void* dst, const void* src, std::size_t size_bytes);

// The vector instruction set in use ("AVX3" is AVX-512), and all that this build and CPU can run, best first.
std::string_view kernel_target();
std::vector<std::string_view> supported_kernel_targets();
// Tests only: later look-ups give kernels of this target; an empty name returns to the best one. False if
// unknown. Not to be called while another thread looks up a kernel.
bool set_kernel_target_for_test(std::string_view name);

}  // namespace tutti
