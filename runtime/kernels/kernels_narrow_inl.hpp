// Vectors of f16, bf16, f8e4m3 and f8e5m2 as registers of f32, compiled once per instruction set. Knows no op.
// The conversions are ours rather than Highway's, whose bf16 truncates and whose emulated f16 does not round to
// nearest even.
//
// No include guard of the usual kind: Highway includes this once per target with another HWY_NAMESPACE.
#if defined(TUTTI_KERNELS_NARROW_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_KERNELS_NARROW_INL_HPP
#undef TUTTI_KERNELS_NARROW_INL_HPP
#else
#define TUTTI_KERNELS_NARROW_INL_HPP
#endif

#include "runtime/kernels/kernels_inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {

using DF = hn::ScalableTag<float>;
using DU = hn::ScalableTag<std::uint32_t>;
using DI = hn::ScalableTag<std::int32_t>;
using VF = hn::Vec<DF>;
using VU = hn::Vec<DU>;

HWY_INLINE VU bits_of(VF v) { return hn::BitCast(DU(), v); }
HWY_INLINE VF float_of(VU v) { return hn::BitCast(DF(), v); }
HWY_INLINE VU constant(std::uint32_t v) { return hn::Set(DU(), v); }
// `yes` where a < b, both below 2^31 (signed comparison is native everywhere), else `no`.
HWY_INLINE VU select_if_less(VU a, VU b, VU yes, VU no) {
  const auto less = hn::Lt(hn::BitCast(DI(), a), hn::BitCast(DI(), b));
  return hn::IfThenElse(hn::RebindMask(DU(), less), yes, no);
}

// A format of 1 sign, kExponent exponent and kMantissa mantissa bits, in the low bits of u32 lanes.
// kFiniteOnly: no infinity, the all-ones code is NaN, and too large values saturate (f8e4m3).
template <int kExponent, int kMantissa, bool kFiniteOnly>
struct SmallFormat {
  static constexpr int kBias = (1 << (kExponent - 1)) - 1;
  static constexpr int kShift = 23 - kMantissa;  // from the mantissa's place here to its place in f32
  static constexpr std::uint32_t kMagnitude = (1u << (kExponent + kMantissa)) - 1;
  static constexpr std::uint32_t kInfinity = ((1u << kExponent) - 1) << kMantissa;
  static constexpr std::uint32_t kLargest = kFiniteOnly ? kMagnitude - 1 : kInfinity;  // result of overflow
  static constexpr std::uint32_t kNan = kFiniteOnly ? kMagnitude : kInfinity | (1u << (kMantissa - 1));

  static HWY_INLINE VF decode(VU code) {
    const VU magnitude = hn::And(code, constant(kMagnitude));
    const VU sign = hn::ShiftLeft<31 - kExponent - kMantissa>(hn::AndNot(constant(kMagnitude), code));
    const VU shifted = hn::ShiftLeft<kShift>(magnitude);
    const VU normal = hn::Add(shifted, constant(static_cast<std::uint32_t>(127 - kBias) << 23));
    // A subnormal m stands for m * 2^(1-bias-mantissa): put m below a leading one of 2^(1-bias), then
    // subtract that.
    const VU one = constant(static_cast<std::uint32_t>(128 - kBias) << 23);
    const VU subnormal = bits_of(hn::Sub(float_of(hn::Add(shifted, one)), float_of(one)));
    VU value = select_if_less(magnitude, constant(1u << kMantissa), subnormal, normal);
    const VU special = kFiniteOnly ? constant(0x7FC00000u) : hn::Or(shifted, constant(0x7F800000u));
    value = select_if_less(magnitude, constant(kFiniteOnly ? kMagnitude : kInfinity), value, special);
    return float_of(hn::Or(value, sign));
  }

  // Rounds to nearest even. The sign of NaN is dropped.
  static HWY_INLINE VU encode(VF value) {
    const VU bits = bits_of(value);
    const VU magnitude = hn::And(bits, constant(0x7FFFFFFFu));
    const VU sign = hn::ShiftRight<31 - kExponent - kMantissa>(hn::AndNot(constant(0x7FFFFFFFu), bits));
    // Normal result: add half a unit less one, plus the bit that decides ties, and cut off. A carry into the
    // exponent is the right result too.
    const VU odd = hn::And(hn::ShiftRight<kShift>(magnitude), constant(1));
    const std::uint32_t rebias = static_cast<std::uint32_t>(127 - kBias) << 23;
    const VU rounded =
        hn::Add(hn::Sub(hn::Add(magnitude, constant((1u << (kShift - 1)) - 1)), constant(rebias)), odd);
    const VU normal = hn::Min(hn::ShiftRight<kShift>(rounded), constant(kLargest));
    // Subnormal result: adding 2^k whose last bit is worth one unit of the result lets the adder round.
    const VU magic = constant(static_cast<std::uint32_t>(127 - kBias + kShift + 1) << 23);
    const VU subnormal = hn::Sub(bits_of(hn::Add(float_of(magnitude), float_of(magic))), magic);
    const VU code =
        select_if_less(magnitude, constant(static_cast<std::uint32_t>(128 - kBias) << 23), subnormal, normal);
    return select_if_less(constant(0x7F800000u), magnitude, constant(kNan), hn::Or(code, sign));
  }
};

// One f32 register per step; elements of Storage are widened on load and narrowed on store.
template <class Storage, class Format>
struct SmallLanes {
  using Element = Storage;
  using Group = VF;
  using DStorage = hn::Rebind<Storage, DF>;
  static constexpr std::size_t kMaxStep = HWY_MAX_BYTES / sizeof(float);
  static constexpr bool kHasMasks = false, kStreams = false;  // less than any vector
  static HWY_INLINE std::size_t step() { return hn::Lanes(DF()); }
  static HWY_INLINE Group load(const Storage* from) {
    return Format::decode(hn::BitCast(DU(), hn::PromoteTo(DI(), load_unaligned(DStorage(), from))));
  }
  static HWY_INLINE void store(Group group, Storage* to) {
    // Codes fit the storage type, so the saturation of DemoteTo never acts.
    store_unaligned(hn::DemoteTo(DStorage(), hn::BitCast(DI(), Format::encode(group))), DStorage(), to);
  }
  template <class Op>
  static HWY_INLINE Group combine(Group a, Group b) {
    return Op::apply(a, b);
  }
  static HWY_INLINE Group all(double number) { return hn::Set(DF(), static_cast<float>(number)); }
};

#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
// f16 has instructions here; they round to nearest even and keep subnormals.
struct HalfLanes : SmallLanes<std::uint16_t, SmallFormat<5, 10, false>> {
  using DHalf = hn::Rebind<hwy::float16_t, DF>;
  static HWY_INLINE VF load(const std::uint16_t* from) {
    return hn::PromoteTo(DF(), hn::BitCast(DHalf(), load_unaligned(DStorage(), from)));
  }
  static HWY_INLINE hn::Vec<DStorage> narrowed(VF group) {
    const VF quiet = hn::IfThenElse(hn::Eq(group, group), group, float_of(constant(0x7FC00000u)));
    return hn::BitCast(DStorage(), hn::DemoteTo(DHalf(), quiet));
  }
  static HWY_INLINE void store(VF group, std::uint16_t* to) {
    store_unaligned(narrowed(group), DStorage(), to);
  }
  static constexpr bool kStreams = true;
  static HWY_INLINE void stream(VF group, std::uint16_t* to) { hn::Stream(narrowed(group), DStorage(), to); }
};
#else
using HalfLanes = SmallLanes<std::uint16_t, SmallFormat<5, 10, false>>;
#endif

// The upper half of the result is the rounded bf16; the lower half is rubbish.
HWY_INLINE VU round_to_bfloat(VF value) {
  const VU bits = bits_of(value);
  const VU odd = hn::And(hn::ShiftRight<16>(bits), constant(1));
  const VU rounded = hn::Add(hn::Add(bits, constant(0x7FFFu)), odd);
  const auto is_number = hn::RebindMask(DU(), hn::Eq(value, value));
  return hn::IfThenElse(is_number, rounded, constant(0x7FC00000u));
}

#if HWY_TARGET == HWY_SCALAR
using BfloatLanes = SmallLanes<std::uint16_t, SmallFormat<8, 7, false>>;
#else
// bf16 is the upper half of an f32: a u32 lane holds two elements, which are split and joined by shifts
// alone.
struct BfloatLanes {
  using Element = std::uint16_t;
  struct Group {
    VF low, high;
  };
  using DStorage = hn::ScalableTag<std::uint16_t>;
  static constexpr std::size_t kMaxStep = HWY_MAX_BYTES / sizeof(std::uint16_t);
  static constexpr bool kHasMasks = false;
  static HWY_INLINE std::size_t step() { return hn::Lanes(DStorage()); }
  static HWY_INLINE Group load(const std::uint16_t* from) {
    const VU pair = hn::BitCast(DU(), load_unaligned(DStorage(), from));
    return {float_of(hn::ShiftLeft<16>(pair)), float_of(hn::And(pair, constant(0xFFFF0000u)))};
  }
  static HWY_INLINE hn::Vec<DStorage> narrowed(Group group) {
    const VU pair = hn::Or(hn::ShiftRight<16>(round_to_bfloat(group.low)),
                           hn::And(round_to_bfloat(group.high), constant(0xFFFF0000u)));
    return hn::BitCast(DStorage(), pair);
  }
  static HWY_INLINE void store(Group group, std::uint16_t* to) {
    store_unaligned(narrowed(group), DStorage(), to);
  }
  static constexpr bool kStreams = true;
  static HWY_INLINE void stream(Group group, std::uint16_t* to) {
    hn::Stream(narrowed(group), DStorage(), to);
  }
  template <class Op>
  static HWY_INLINE Group combine(Group a, Group b) {
    return {Op::apply(a.low, b.low), Op::apply(a.high, b.high)};
  }
  static HWY_INLINE Group all(double number) {
    const VF value = hn::Set(DF(), static_cast<float>(number));
    return {value, value};
  }
};
#endif

// The same of bf16 with one f32 register per step, which conversions need.
struct BfloatFormat {
  static HWY_INLINE VF decode(VU code) { return float_of(hn::ShiftLeft<16>(code)); }
  static HWY_INLINE VU encode(VF value) { return hn::ShiftRight<16>(round_to_bfloat(value)); }
};
using BfloatHalfLanes = SmallLanes<std::uint16_t, BfloatFormat>;

using E4m3Lanes = SmallLanes<std::uint8_t, SmallFormat<4, 3, true>>;
using E5m2Lanes = SmallLanes<std::uint8_t, SmallFormat<5, 2, false>>;

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
