// Reduction and scaling kernels of f32 and f64.
// Knows nothing of narrower formats, which accumulate in f32 and live in kernels_narrow.cpp.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/kernels_float.cpp"
#include "runtime/kernels/kernel_targets.hpp"

#include <hwy/foreach_target.h>

#include "runtime/kernels/kernels_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {

Kernels select_float(Op op, Dtype dtype) {
  if (dtype == Dtype::f32) return float_kernels<PlainLanes<float>>(op);
  if (dtype == Dtype::f64) return float_kernels<PlainLanes<double>>(op);
  return {};
}

detail::ScaleFn select_scale(Dtype dtype, bool divide) {
  if (dtype == Dtype::f32) return scale_of<PlainLanes<float>>(divide);
  if (dtype == Dtype::f64) return scale_of<PlainLanes<double>>(divide);
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
