// Copies of up to some thousand bytes, with the widest stores this CPU has, in order of address. Compiled
// once per instruction set by Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/base/kernels_copy.cpp"
#include "runtime/base/kernel_targets.hpp"

#include <hwy/foreach_target.h>

#include "runtime/base/kernels_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {

void copy_in_order(void* dst, const void* src, std::size_t size_bytes) {
#if HWY_TARGET == HWY_SCALAR
  std::memcpy(dst, src, size_bytes);
#else
  const hn::ScalableTag<std::uint8_t> d;
  const std::size_t step = hn::Lanes(d);
  if (size_bytes < step) {
    std::memcpy(dst, src, size_bytes);
    return;
  }
  auto* const to = static_cast<std::uint8_t*>(dst);
  const auto* const from = static_cast<const std::uint8_t*>(src);
  std::size_t i = 0;
  for (; size_bytes - i >= 4 * step; i += 4 * step) {
    const auto first = hn::LoadU(d, from + i), second = hn::LoadU(d, from + i + step),
               third = hn::LoadU(d, from + i + 2 * step), fourth = hn::LoadU(d, from + i + 3 * step);
    hn::StoreU(first, d, to + i);
    hn::StoreU(second, d, to + i + step);
    hn::StoreU(third, d, to + i + 2 * step);
    hn::StoreU(fourth, d, to + i + 3 * step);
  }
  for (; size_bytes - i >= step; i += step) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
  if (i == size_bytes) return;
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
