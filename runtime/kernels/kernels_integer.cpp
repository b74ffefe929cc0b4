// Reduction kernels of integers and bool: wrapping arithmetic, comparisons, bits and truth values.
// Knows nothing of floating point. Compiled once per instruction set by Highway.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/kernels/kernels_integer.cpp"
#include "runtime/kernels/kernel_targets.hpp"

#include <hwy/foreach_target.h>

#include "runtime/kernels/kernels_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {
namespace {

// Product of 8-bit lanes, which no instruction set has: even and odd bytes apart, in 16-bit lanes.
template <class V>
HWY_INLINE V multiply_bytes(V a, V b) {
  const hn::DFromV<V> d;
#if HWY_TARGET == HWY_SCALAR
  return hn::Set(d, static_cast<std::uint8_t>(hn::GetLane(a) * hn::GetLane(b)));  // one lane: nothing to pair
#else
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto wide_a = hn::BitCast(wide, a);
  const auto wide_b = hn::BitCast(wide, b);
  const auto even = hn::And(hn::Mul(wide_a, wide_b), hn::Set(wide, 0xFF));
  const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(wide_a), hn::ShiftRight<8>(wide_b)));
  return hn::BitCast(d, hn::Or(even, odd));
#endif
}
struct WrappingProduct {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    if constexpr (sizeof(hn::TFromD<hn::DFromV<V>>) == 1) {
      return multiply_bytes(a, b);
    } else {
      return hn::Mul(a, b);
    }
  }
};
struct Min {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Min(a, b);
  }
};
struct Max {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Max(a, b);
  }
};
struct BitAnd {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::And(a, b);
  }
};
struct BitOr {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Or(a, b);
  }
};
struct BitXor {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Xor(a, b);
  }
};

// 0 or 1: the minimum of an unsigned lane and one.
template <class V>
HWY_INLINE V truth(V v) {
  return hn::Min(v, hn::Set(hn::DFromV<V>(), 1));
}
struct LogicalAnd {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::And(truth(a), truth(b));
  }
};
struct LogicalOr {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return truth(hn::Or(a, b));
  }
};
struct LogicalXor {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Xor(truth(a), truth(b));
  }
};

// Ops that do not depend on the sign; U is the unsigned type of the element's width.
template <class U>
Kernels select_by_width(Op op) {
  using Lanes = PlainLanes<U>;
  switch (op) {
    case Op::sum:
      return kernels_of<Lanes, Sum>();
    case Op::prod:
      return kernels_of<Lanes, WrappingProduct>();
    case Op::band:
      return kernels_of<Lanes, BitAnd>();
    case Op::bor:
      return kernels_of<Lanes, BitOr>();
    case Op::bxor:
      return kernels_of<Lanes, BitXor>();
    case Op::land:
      return kernels_of<Lanes, LogicalAnd>();
    case Op::lor:
      return kernels_of<Lanes, LogicalOr>();
    case Op::lxor:
      return kernels_of<Lanes, LogicalXor>();
    default:
      return {};
  }
}

template <class T>
Kernels select_typed(Op op) {
  if (op == Op::min) return kernels_of<PlainLanes<T>, Min>();
  if (op == Op::max) return kernels_of<PlainLanes<T>, Max>();
  return select_by_width<hwy::MakeUnsigned<T>>(op);
}

Kernels select_boolean(Op op) {
  using Lanes = PlainLanes<std::uint8_t>;
  switch (op) {
    case Op::sum:
    case Op::max:
    case Op::bor:
    case Op::lor:
      return kernels_of<Lanes, LogicalOr>();
    case Op::prod:
    case Op::min:
    case Op::band:
    case Op::land:
      return kernels_of<Lanes, LogicalAnd>();
    case Op::bxor:
    case Op::lxor:
      return kernels_of<Lanes, LogicalXor>();
    default:
      return {};
  }
}

template <class U>
void multiply(void* dst, const void* src, std::size_t count, detail::ScaleFactor factor) {
  using Lanes = PlainLanes<U>;
  map_with<Lanes, WrappingProduct>(dst, src, count,
                                   hn::Set(typename Lanes::D(), static_cast<U>(factor.integer)));
}

}  // namespace

Kernels select_integer(Op op, Dtype dtype) {
  switch (dtype) {
    case Dtype::i8:
      return select_typed<std::int8_t>(op);
    case Dtype::u8:
      return select_typed<std::uint8_t>(op);
    case Dtype::i16:
      return select_typed<std::int16_t>(op);
    case Dtype::u16:
      return select_typed<std::uint16_t>(op);
    case Dtype::i32:
      return select_typed<std::int32_t>(op);
    case Dtype::u32:
      return select_typed<std::uint32_t>(op);
    case Dtype::i64:
      return select_typed<std::int64_t>(op);
    case Dtype::u64:
      return select_typed<std::uint64_t>(op);
    case Dtype::boolean:
      return select_boolean(op);
    default:
      return {};
  }
}

detail::ScaleFn select_multiply(Dtype dtype) {
  switch (size_of(dtype)) {
    case 1:
      return multiply<std::uint8_t>;
    case 2:
      return multiply<std::uint16_t>;
    case 4:
      return multiply<std::uint32_t>;
    default:
      return multiply<std::uint64_t>;
  }
}

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tutti {
HWY_EXPORT(select_integer);
HWY_EXPORT(select_multiply);

Kernels detail::select_integer_kernels(Op op, Dtype dtype) {
  return HWY_DYNAMIC_DISPATCH(select_integer)(op, dtype);
}
detail::ScaleFn detail::select_integer_multiply(Dtype dtype) {
  return HWY_DYNAMIC_DISPATCH(select_multiply)(dtype);
}
}  // namespace tutti
#endif
