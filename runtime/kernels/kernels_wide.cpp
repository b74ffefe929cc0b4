// Reduction kernels of elements that are several numbers: complex numbers, and pairs of a value and an index.
// Knows no vectors: sums of complex numbers are sums of their parts, whose kernels do the work.
#include <cmath>
#include <cstring>

#include "runtime/kernels/kernel_targets.hpp"
#include "tutti/element.hpp"

namespace tutti::detail {
namespace {

// -- complex numbers ----------------------------------------------------------------------------------------

template <Dtype kPart>
void fold_parts(const UserOp* user, void* dst, const void* const* sources, std::size_t source_count,
                std::size_t count) {
  select_float_kernels(Op::sum, kPart).fold(user, dst, sources, source_count, 2 * count);
}

template <Dtype kPart>
void stream_parts(void* const* places, std::size_t place_count, std::size_t cached_count,
                  const void* const* sources, std::size_t source_count, std::size_t count) {
  select_float_kernels(Op::sum, kPart)
      .stream(places, place_count, cached_count, sources, source_count, 2 * count);
}

template <class T>
struct Complex {
  T real, imaginary;
};

template <class T>
Complex<T> load(const void* from, std::size_t index) {
  Complex<T> value;
  std::memcpy(&value, static_cast<const std::byte*>(from) + index * sizeof value, sizeof value);
  return value;
}

template <class T>
void multiply(const UserOp* /*user*/, void* dst, const void* const* sources, std::size_t source_count,
              std::size_t count) {
  if (source_count == 1) return copy_bytes(dst, sources[0], count * sizeof(Complex<T>));
  for (std::size_t i = 0; i < count; ++i) {
    Complex<T> product = load<T>(sources[0], i);
    for (std::size_t k = 1; k < source_count; ++k) {
      const Complex<T> next = load<T>(sources[k], i);
      product = {product.real * next.real - product.imaginary * next.imaginary,
                 product.real * next.imaginary + product.imaginary * next.real};
    }
    std::memcpy(static_cast<std::byte*>(dst) + i * sizeof product, &product, sizeof product);
  }
}

template <class T, Dtype kPart>
Kernels select_complex(Op op) {
  Kernels kernels;
  if (op == Op::prod) kernels.fold = multiply<T>;
  if (op == Op::sum) {
    kernels.fold = fold_parts<kPart>;
    if (select_float_kernels(Op::sum, kPart).stream != nullptr) kernels.stream = stream_parts<kPart>;
  }
  return kernels;
}

// -- pairs --------------------------------------------------------------------------------------------------

// Whether `a` is in front of `b`. The greatest number is in front where kIsMax, else the least.
template <bool kIsMax, class Value>
bool is_in_front(Value a, Value b) {
  if constexpr (std::is_floating_point_v<Value>) {
    if (std::isnan(b)) return false;
    if (std::isnan(a)) return true;
    if (a == b) return std::signbit(a) != std::signbit(b) && std::signbit(a) != kIsMax;
  }
  return kIsMax ? b < a : a < b;
}

template <bool kIsMax, class Value, class Index>
void locate(const UserOp* /*user*/, void* dst, const void* const* sources, std::size_t source_count,
            std::size_t count) {
  using Pair = ValueIndex<Value, Index>;
  if (source_count == 1) return copy_bytes(dst, sources[0], count * sizeof(Pair));
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = [&](std::size_t k) {
      return static_cast<const std::byte*>(sources[k]) + i * sizeof(Pair);
    };
    const std::byte* best_at = at(0);
    Pair best;
    std::memcpy(&best, best_at, sizeof best);
    for (std::size_t k = 1; k < source_count; ++k) {
      Pair next;
      std::memcpy(&next, at(k), sizeof next);
      const bool is_first = is_in_front<kIsMax>(next.value, best.value);
      if (!is_first && (is_in_front<kIsMax>(best.value, next.value) || best.index <= next.index)) continue;
      best = next;
      best_at = at(k);
    }
    // From where it lies: padding belongs to the element.
    std::memmove(static_cast<std::byte*>(dst) + i * sizeof(Pair), best_at, sizeof(Pair));
  }
}

template <class Value, class Index>
Kernels select_pair(Op op) {
  Kernels kernels;
  if (op == Op::minloc) kernels.fold = locate<false, Value, Index>;
  if (op == Op::maxloc) kernels.fold = locate<true, Value, Index>;
  return kernels;
}

}  // namespace

Kernels select_wide_kernels(Op op, Dtype dtype) {
  switch (dtype) {
    case Dtype::c64:
      return select_complex<float, Dtype::f32>(op);
    case Dtype::c128:
      return select_complex<double, Dtype::f64>(op);
    case Dtype::f32_i32:
      return select_pair<float, std::int32_t>(op);
    case Dtype::f64_i32:
      return select_pair<double, std::int32_t>(op);
    case Dtype::i32_i32:
      return select_pair<std::int32_t, std::int32_t>(op);
    case Dtype::i64_i32:
      return select_pair<std::int64_t, std::int32_t>(op);
    case Dtype::f64_i64:
      return select_pair<double, std::int64_t>(op);
    case Dtype::i64_i64:
      return select_pair<std::int64_t, std::int64_t>(op);
    default:
      return {};
  }
}

}  // namespace tutti::detail
