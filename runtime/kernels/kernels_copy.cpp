// Copies of up to some thousand bytes, with the widest stores this CPU has, in order of address. Compiled
// once per instruction set by Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/kernels_copy.cpp"
#include "runtime/kernels/kernel_targets.hpp"

#include <hwy/foreach_target.h>

#include "runtime/kernels/kernels_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {

void copy_in_order(void* dst, const void* src, std::size_t size_bytes) {
#if HWY_TARGET == HWY_SCALAR
  std::memcpy(dst, src, size_bytes);
#else
  const hn::ScalableTag<std::uint8_t> d;
  static_assert(HWY_MAX_BYTES <= detail::kLeastInOrderBytes, "the rest is a vector of its own");
  const std::size_t step = hn::Lanes(d);
  auto* const to = static_cast<std::uint8_t*>(dst);
  const auto* const from = static_cast<const std::uint8_t*>(src);
  std::size_t i = 0;
  for (; size_bytes - i >= step; i += step) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  i = size_bytes - step;  // the rest, with some bytes once more
  hn::StoreU(hn::LoadU(d, from + i), d, to + i);
#endif
}

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
HWY_EXPORT(copy_in_order);

void detail::copy_in_order(void* dst, const void* src, std::size_t size_bytes) {
  HWY_DYNAMIC_DISPATCH(copy_in_order)(dst, src, size_bytes);
}
}  // namespace tutti
#endif
