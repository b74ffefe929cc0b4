// The loops that all vector kernels share, compiled once per instruction set. Knows no op and no dtype: a
// Lanes type turns elements into vectors, an Op type combines them.
//
// A Lanes type has
//   Element           the type in memory; Group, the registers of one step
//   step()            elements per Group; kMaxStep, an upper bound known at compile time
//   kHasMasks         a part of a vector can be loaded and stored without touching the rest
//   load, store       unaligned; store rounds if the accumulator is wider than the element
//   kStreams, stream  non-temporal store of a whole group, to an aligned address; kStreams: there is one
//   combine<Op>       applies Op::apply(a, b) to the registers of two groups
//   all(number)       a Group of this number, for scaling
//
// No include guard of the usual kind: Highway includes this once per target with another HWY_NAMESPACE.
#if defined(TUTTI_BASE_KERNELS_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef TUTTI_BASE_KERNELS_INL_HPP
#undef TUTTI_BASE_KERNELS_INL_HPP
#else
#define TUTTI_BASE_KERNELS_INL_HPP
#endif

#include "runtime/kernels/kernel_targets.hpp"

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <limits>

#include "runtime/base/relax.hpp"

HWY_BEFORE_NAMESPACE();
namespace tutti::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Loads and stores at any address. The one-lane baseline of Highway dereferences a T*, which has to be
// aligned.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_unaligned(D d, const T* from) {
#if HWY_TARGET == HWY_SCALAR
  T value;
  std::memcpy(&value, static_cast<const void*>(from), sizeof(T));
  return hn::Set(d, value);
#else
  return hn::LoadU(d, from);
#endif
}
template <class D, class V, class T = hn::TFromD<D>>
HWY_INLINE void store_unaligned(V v, D d, T* to) {
#if HWY_TARGET == HWY_SCALAR
  (void)d;
  const T value = hn::GetLane(v);
  std::memcpy(static_cast<void*>(to), &value, sizeof(T));
#else
  hn::StoreU(v, d, to);
#endif
}

// Elements and vectors of one type; the accumulator is the element type.
template <class T>
struct PlainLanes {
  using Element = T;
  using D = hn::ScalableTag<T>;
  using Group = hn::Vec<D>;
  static constexpr std::size_t kMaxStep = HWY_MAX_BYTES / sizeof(T);
  // Whether access to a part of a vector is safe next to foreign memory.
  static constexpr bool kHasMasks = HWY_TARGET != HWY_SCALAR && !HWY_MEM_OPS_MIGHT_FAULT && sizeof(T) >= 4;
  static HWY_INLINE std::size_t step() { return hn::Lanes(D()); }
  static HWY_INLINE Group load(const T* from) { return load_unaligned(D(), from); }
  static HWY_INLINE void store(Group group, T* to) { store_unaligned(group, D(), to); }
  static constexpr bool kStreams = HWY_TARGET != HWY_SCALAR;
  static HWY_INLINE void stream(Group group, T* to) { hn::Stream(group, D(), to); }
  template <class Op>
  static HWY_INLINE Group combine(Group a, Group b) {
    return Op::apply(a, b);
  }
  static HWY_INLINE Group all(double number) { return hn::Set(D(), static_cast<T>(number)); }
};

// The last, incomplete step of a fold, where the CPU loads and stores a part of a vector.
template <class Lanes, class Op>
HWY_INLINE void fold_masked(typename Lanes::Element* dst, const void* const* sources,
                            std::size_t source_count, std::size_t first, std::size_t count) {
  using Element = typename Lanes::Element;
  const hn::ScalableTag<Element> d;
  const auto mask = hn::FirstN(d, count - first);
  auto sum = hn::MaskedLoad(mask, d, static_cast<const Element*>(sources[0]) + first);
  for (std::size_t k = 1; k < source_count; ++k) {
    const auto next = hn::MaskedLoad(mask, d, static_cast<const Element*>(sources[k]) + first);
    sum = Lanes::template combine<Op>(sum, next);
  }
  hn::BlendedStore(sum, mask, d, dst + first);
}

// The same anywhere. It goes through a small buffer so that no byte outside is read or written.
template <class Lanes, class Op>
HWY_INLINE void fold_rest(typename Lanes::Element* dst, const void* const* sources, std::size_t source_count,
                          std::size_t first, std::size_t count) {
  using Element = typename Lanes::Element;
  alignas(64) Element buffer[Lanes::kMaxStep] = {};
  const std::size_t rest_bytes = (count - first) * sizeof(Element);
  std::memcpy(buffer, static_cast<const Element*>(sources[0]) + first, rest_bytes);
  auto sum = Lanes::load(buffer);
  for (std::size_t k = 1; k < source_count; ++k) {
    std::memcpy(buffer, static_cast<const Element*>(sources[k]) + first, rest_bytes);
    sum = Lanes::template combine<Op>(sum, Lanes::load(buffer));
  }
  Lanes::store(sum, buffer);
  std::memcpy(dst + first, buffer, rest_bytes);
}

// A few elements, one by one. That is less work than a part of a vector. A narrow load also hits the store
// buffer after a narrow store, where a wide load must wait for the cache.
template <class Lanes, class Op>
HWY_INLINE void fold_few(typename Lanes::Element* dst, const void* const* sources, std::size_t source_count,
                         std::size_t count) {
  using Element = typename Lanes::Element;
  const hn::CappedTag<Element, 1> d;
  for (std::size_t i = 0; i < count; ++i) {
    auto sum = load_unaligned(d, static_cast<const Element*>(sources[0]) + i);
    for (std::size_t k = 1; k < source_count; ++k)
      sum = Op::apply(sum, load_unaligned(d, static_cast<const Element*>(sources[k]) + i));
    store_unaligned(sum, d, dst + i);
  }
}

// Folds the steps [first, ...) that fit before `count`, kUnroll of them at a time; returns where it stopped.
// All sources of a step are read before it is written, so an identical dst is safe. kSources is 2 for the
// form that matters most (no inner loop), 0 for "source_count of them".
template <class Lanes, class Op, int kUnroll, int kSources>
HWY_INLINE std::size_t fold_steps(typename Lanes::Element* dst, const void* const* sources,
                                  std::size_t source_count, std::size_t first, std::size_t count) {
  using Element = typename Lanes::Element;
  const std::size_t step = Lanes::step();
  const std::size_t source_end = kSources != 0 ? kSources : source_count;
  std::size_t i = first;
  for (; count - i >= kUnroll * step; i += kUnroll * step) {
    typename Lanes::Group sum[kUnroll];
    const Element* from = static_cast<const Element*>(sources[0]) + i;
    for (int u = 0; u < kUnroll; ++u) sum[u] = Lanes::load(from + u * step);
    for (std::size_t k = 1; k < source_end; ++k) {
      from = static_cast<const Element*>(sources[k]) + i;
      for (int u = 0; u < kUnroll; ++u) {
        sum[u] = Lanes::template combine<Op>(sum[u], Lanes::load(from + u * step));
      }
    }
    for (int u = 0; u < kUnroll; ++u) Lanes::store(sum[u], dst + i + u * step);
  }
  return i;
}

// The rest of a fold.
template <class Lanes, class Op>
HWY_INLINE void fold_end(typename Lanes::Element* dst, const void* const* sources, std::size_t source_count,
                         std::size_t first, std::size_t count) {
  const std::size_t i = fold_steps<Lanes, Op, 1, 0>(dst, sources, source_count, first, count);
  if (i == count) return;
  if constexpr (Lanes::kHasMasks) {
    fold_masked<Lanes, Op>(dst, sources, source_count, i, count);
  } else {
    fold_rest<Lanes, Op>(dst, sources, source_count, i, count);
  }
}

// The KernelFn of one Lanes and one Op.
template <class Lanes, class Op>
void fold(const UserOp* /*user*/, void* dst_bytes, const void* const* sources, std::size_t source_count,
          std::size_t count) {
  using Element = typename Lanes::Element;
  if (source_count == 1) {
    copy_bytes(dst_bytes, sources[0], count * sizeof(Element));
    return;
  }
  auto* dst = static_cast<Element*>(dst_bytes);
  if constexpr (Lanes::kHasMasks) {
    constexpr std::size_t kFew = 4;
    if (count <= kFew) return fold_few<Lanes, Op>(dst, sources, source_count, count);
  }
  std::size_t i = source_count == 2 ? fold_steps<Lanes, Op, 4, 2>(dst, sources, 2, 0, count)
                                    : fold_steps<Lanes, Op, 4, 0>(dst, sources, source_count, 0, count);
  fold_end<Lanes, Op>(dst, sources, source_count, i, count);
}

// The steps [first, ...) of a StreamKernelFn that fit before `count`, kUnroll of them at a time; returns
// where it stopped.
template <class Lanes, class Op, std::size_t kUnroll>
HWY_INLINE std::size_t stream_steps(void* const* places, std::size_t place_count, std::size_t cached_count,
                                    const void* const* sources, std::size_t source_count, std::size_t first,
                                    std::size_t count) {
  using Element = typename Lanes::Element;
  const std::size_t step = Lanes::step();
  std::size_t i = first;
  for (; count - i >= kUnroll * step; i += kUnroll * step) {
    typename Lanes::Group sum[kUnroll];
    const Element* from = static_cast<const Element*>(sources[0]) + i;
    for (std::size_t u = 0; u < kUnroll; ++u) sum[u] = Lanes::load(from + u * step);
    for (std::size_t k = 1; k < source_count; ++k) {
      from = static_cast<const Element*>(sources[k]) + i;
      for (std::size_t u = 0; u < kUnroll; ++u)
        sum[u] = Lanes::template combine<Op>(sum[u], Lanes::load(from + u * step));
    }
    for (std::size_t p = 0; p < cached_count; ++p) {
      Element* const to = static_cast<Element*>(places[p]) + i;
      for (std::size_t u = 0; u < kUnroll; ++u) Lanes::store(sum[u], to + u * step);
    }
    for (std::size_t p = cached_count; p < place_count; ++p) {
      Element* const to = static_cast<Element*>(places[p]) + i;
      for (std::size_t u = 0; u < kUnroll; ++u) Lanes::stream(sum[u], to + u * step);
    }
  }
  return i;
}

// The StreamKernelFn of one Lanes and one Op. Registers go straight to all destinations: assembling a result
// in the cache first makes its stores a fifth slower.
template <class Lanes, class Op>
void fold_streaming(void* const* places, std::size_t place_count, std::size_t cached_count,
                    const void* const* sources, std::size_t source_count, std::size_t count) {
  using Element = typename Lanes::Element;
  if (source_count == 1) {
    for (std::size_t p = 0; p < place_count; ++p)
      (p < cached_count ? copy_bytes : copy_bytes_streaming)(places[p], sources[0], count * sizeof(Element));
    return;
  }
  auto* const first_place = static_cast<Element*>(places[0]);
  const auto fold_some = [&](std::size_t first, std::size_t end) {
    if (first == end) return;
    fold_end<Lanes, Op>(first_place, sources, source_count, first, end);
    for (std::size_t p = 1; p < place_count; ++p)
      std::memcpy(static_cast<Element*>(places[p]) + first, first_place + first,
                  (end - first) * sizeof(Element));
  };
  const void* const first_streamed = places[std::min(cached_count, place_count - 1)];
  const std::size_t before_line = -reinterpret_cast<std::uintptr_t>(first_streamed) % kLineBytes;
  std::size_t i = before_line / sizeof(Element);
  if (i > count) i = count;
  fold_some(0, i);
  if (source_count == 2 && place_count == 2 && cached_count == 0) {
    // For two destinations, store line by line: 4 % faster between cores of different caches than four lines
    // to one and then four to the other. So short a step needs its pointers in registers.
    constexpr std::size_t kLineSteps =
        std::clamp<std::size_t>(kLineBytes / (Lanes::kMaxStep * sizeof(Element)), 1, 4);
    const void* const two_sources[] = {sources[0], sources[1]};
    void* const two_places[] = {places[0], places[1]};
    i = stream_steps<Lanes, Op, kLineSteps>(two_places, 2, 0, two_sources, 2, i, count);
  } else {
    i = stream_steps<Lanes, Op, 4>(places, place_count, cached_count, sources, source_count, i, count);
  }
  fold_some(i, count);
  hwy::FlushStream();
}

// Both kernels of one Lanes and one Op.
template <class Lanes, class Op>
constexpr Kernels kernels_of() {
  Kernels kernels;
  kernels.fold = fold<Lanes, Op>;
  if constexpr (Lanes::kStreams) kernels.stream = fold_streaming<Lanes, Op>;
  return kernels;
}

// dst[i] = src[i] Op factor, with `factor` a Group: the scaling form of the same loops.
template <class Lanes, class Op>
HWY_INLINE void map_with(void* dst_bytes, const void* src_bytes, std::size_t count,
                         typename Lanes::Group factor) {
  using Element = typename Lanes::Element;
  auto* dst = static_cast<Element*>(dst_bytes);
  const auto* src = static_cast<const Element*>(src_bytes);
  const std::size_t step = Lanes::step();
  std::size_t i = 0;
  for (; count - i >= step; i += step) {
    Lanes::store(Lanes::template combine<Op>(Lanes::load(src + i), factor), dst + i);
  }
  if (i == count) return;
  alignas(64) Element buffer[Lanes::kMaxStep] = {};
  std::memcpy(buffer, src + i, (count - i) * sizeof(Element));
  Lanes::store(Lanes::template combine<Op>(Lanes::load(buffer), factor), buffer);
  std::memcpy(dst + i, buffer, (count - i) * sizeof(Element));
}

// Ops that are the same on integers and floating-point vectors.
struct Sum {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Add(a, b);
  }
};
struct Product {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Mul(a, b);
  }
};

// min and max of ops.hpp: NaN in, positive quiet NaN out; -0 below +0. Written with comparisons, since
// minimum instructions treat NaN and zeros differently between CPUs.
template <class V>
HWY_INLINE V nan_if_unordered(V value, V a, V b) {
  using T = hn::TFromD<hn::DFromV<V>>;
  const auto is_ordered = hn::And(hn::Eq(a, a), hn::Eq(b, b));
  return hn::IfThenElse(is_ordered, value, hn::Set(hn::DFromV<V>(), std::numeric_limits<T>::quiet_NaN()));
}
struct FloatMin {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    // Both selections agree unless a == b, and then only the signs of two zeros can differ.
    const V smaller = hn::Or(hn::IfThenElse(hn::Lt(a, b), a, b), hn::IfThenElse(hn::Lt(b, a), b, a));
    return nan_if_unordered(smaller, a, b);
  }
};
struct FloatMax {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    const V larger = hn::And(hn::IfThenElse(hn::Lt(b, a), a, b), hn::IfThenElse(hn::Lt(a, b), b, a));
    return nan_if_unordered(larger, a, b);
  }
};
struct Divide {
  template <class V>
  static HWY_INLINE V apply(V a, V b) {
    return hn::Div(a, b);
  }
};

// The kernels of a floating-point format.
template <class Lanes>
Kernels float_kernels(Op op) {
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

template <class Lanes, class Op>
void scale_by(void* dst, const void* src, std::size_t count, detail::ScaleFactor factor) {
  map_with<Lanes, Op>(dst, src, count, Lanes::all(factor.real));
}
template <class Lanes>
detail::ScaleFn scale_of(bool divide) {
  return divide ? scale_by<Lanes, Divide> : scale_by<Lanes, Product>;
}

}  // namespace tutti::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
