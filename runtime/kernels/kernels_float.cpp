// Reduction and scaling kernels of f32 and f64.
// Knows nothing of narrower formats, which accumulate in f32 and live in kernels_narrow.cpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/kernels_float.cpp"
#include "runtime/kernels/kernel_targets.hpp"

#include <hwy/foreach_target.h>

#include "runtime/kernels/kernels_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
namespace {

template <class T>
Kernels select_typed(Op op) {
  using Lanes = PlainLanes<T>;
  switch (op) {
    case Op::sum:
      return kernels_of<Lanes, Sum>();
    case Op::prod:
      return kernels_of<Lanes, Product>();
    case Op::min:
      return kernels_of<Lanes, FloatMin>();
    case Op::max:
      return kernels_of<Lanes, FloatMax>();
    default:
      return {};
  }
}

template <class T, class Op>
void scale_by(void* dst, const void* src, std::size_t count, detail::ScaleFactor factor) {
  using Lanes = PlainLanes<T>;
  map_with<Lanes, Op>(dst, src, count, hn::Set(typename Lanes::D(), static_cast<T>(factor.real)));
}

}  // namespace

Kernels select_float(Op op, Dtype dtype) {
  if (dtype == Dtype::f32) return select_typed<float>(op);
  if (dtype == Dtype::f64) return select_typed<double>(op);
  return {};
}

detail::ScaleFn select_scale(Dtype dtype, bool divide) {
  if (dtype == Dtype::f32) return divide ? scale_by<float, Divide> : scale_by<float, Product>;
  if (dtype == Dtype::f64) return divide ? scale_by<double, Divide> : scale_by<double, Product>;
  return {};
}

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
HWY_EXPORT(select_float);
HWY_EXPORT(select_scale);

Kernels detail::select_float_kernels(Op op, Dtype dtype) {
  return HWY_DYNAMIC_DISPATCH(select_float)(op, dtype);
}
detail::ScaleFn detail::select_float_scale(Dtype dtype, bool divide) {
  return HWY_DYNAMIC_DISPATCH(select_scale)(dtype, divide);
}
}  // namespace tutti
#endif
