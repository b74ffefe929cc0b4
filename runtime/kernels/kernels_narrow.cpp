// Reduction and scaling kernels of f16, bf16, f8e4m3 and f8e5m2: convert to f32, fold there, round once.
// Knows nothing of wider types.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/kernels_narrow.cpp"
#include "runtime/kernels/kernel_targets.hpp"

#include <hwy/foreach_target.h>

#include "runtime/kernels/kernels_narrow_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {

Kernels select_narrow(Op op, Dtype dtype) {
  switch (dtype) {
    case Dtype::f16:
      return float_kernels<HalfLanes>(op);
    case Dtype::bf16:
      return float_kernels<BfloatLanes>(op);
    case Dtype::f8e4m3:
      return float_kernels<E4m3Lanes>(op);
    case Dtype::f8e5m2:
      return float_kernels<E5m2Lanes>(op);
    default:
      return {};
  }
}

detail::ScaleFn select_scale_narrow(Dtype dtype, bool divide) {
  switch (dtype) {
    case Dtype::f16:
      return scale_of<HalfLanes>(divide);
    case Dtype::bf16:
      return scale_of<BfloatLanes>(divide);
    case Dtype::f8e4m3:
      return scale_of<E4m3Lanes>(divide);
    case Dtype::f8e5m2:
      return scale_of<E5m2Lanes>(divide);
    default:
      return {};
  }
}

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
HWY_EXPORT(select_narrow);
HWY_EXPORT(select_scale_narrow);

Kernels detail::select_narrow_kernels(Op op, Dtype dtype) {
  return HWY_DYNAMIC_DISPATCH(select_narrow)(op, dtype);
}
detail::ScaleFn detail::select_narrow_scale(Dtype dtype, bool divide) {
  return HWY_DYNAMIC_DISPATCH(select_scale_narrow)(dtype, divide);
}
}  // namespace tutti
#endif
