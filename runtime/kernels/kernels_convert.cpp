// Conversions between f32 and narrower floats, a vector at a time. Knows no op.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/kernels_convert.cpp"
#include "runtime/kernels/kernel_targets.hpp"

#include <hwy/foreach_target.h>

#include "runtime/kernels/kernels_narrow_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
namespace {

// Calls convert(to, from) for each whole vector, and once more on copies for the rest.
template <class To, class From, class Convert>
HWY_INLINE void convert_all(void* dst_bytes, const void* src_bytes, std::size_t count,
                            const Convert& convert) {
  auto* dst = static_cast<To*>(dst_bytes);
  const auto* src = static_cast<const From*>(src_bytes);
  const std::size_t step = hn::Lanes(DF());
  std::size_t i = 0;
  for (; count - i >= step; i += step) convert(dst + i, src + i);
  if (i == count) return;
  alignas(64) From from[HWY_MAX_BYTES / sizeof(float)] = {};
  alignas(64) To to[HWY_MAX_BYTES / sizeof(float)];
  std::memcpy(from, src + i, (count - i) * sizeof(From));
  convert(to, from);
  std::memcpy(dst + i, to, (count - i) * sizeof(To));
}

template <class Lanes>
void narrow(void* dst, const void* src, std::size_t count) {
  using Code = typename Lanes::Element;
  convert_all<Code, float>(dst, src, count,
                           [](Code* to, const float* from) { Lanes::store(load_unaligned(DF(), from), to); });
}

template <class Lanes>
void widen(void* dst, const void* src, std::size_t count) {
  using Code = typename Lanes::Element;
  convert_all<float, Code>(dst, src, count,
                           [](float* to, const Code* from) { store_unaligned(Lanes::load(from), DF(), to); });
}

template <class Lanes>
Conversions conversions_of() {
  return {narrow<Lanes>, widen<Lanes>};
}

}  // namespace

Conversions select_conversions_here(Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return conversions_of<HalfLanes>();
    case Dtype::bf16:
      return conversions_of<BfloatHalfLanes>();
    case Dtype::f8e4m3:
      return conversions_of<E4m3Lanes>();
    case Dtype::f8e5m2:
      return conversions_of<E5m2Lanes>();
    default:
      return {};
  }
}

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "runtime/base/relax.hpp"

namespace tutti {
HWY_EXPORT(select_conversions_here);

Conversions select_conversions(Dtype dtype) {
  TUTTI_ASSERT(is_narrow_float(dtype), "conversions are those of narrow floats");
  return HWY_DYNAMIC_DISPATCH(select_conversions_here)(dtype);
}
}  // namespace tutti
#endif
