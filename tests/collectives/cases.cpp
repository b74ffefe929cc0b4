// Inputs and serial references.
#include "tests/collectives/cases.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include <fmt/format.h>

namespace tutti::test {
namespace {

std::uint64_t hash(std::uint64_t rank, std::uint64_t index) {
  std::uint64_t x = (rank + 1) * 0x9E3779B97F4A7C15ULL ^ (index + 1) * 0xC2B2AE3D27D4EB4FULL;
  x ^= x >> 31U;
  x *= 0xD6E8FEB86659FD93ULL;
  return x ^ (x >> 32U);
}

std::uint32_t compose(std::uint32_t f, std::uint32_t g) {
  const std::uint32_t a = f >> 16U, b = f & 0xFFFFU, c = g >> 16U, d = g & 0xFFFFU;
  return (((a * c) & 0xFFFFU) << 16U) | ((a * d + b) & 0xFFFFU);
}

void apply_affine(void*, void* dst, const void* a, const void* b, std::size_t count) noexcept {
  const auto* x = static_cast<const std::uint32_t*>(a);
  const auto* y = static_cast<const std::uint32_t*>(b);
  auto* out = static_cast<std::uint32_t*>(dst);
  for (std::size_t i = 0; i < count; ++i) out[i] = compose(x[i], y[i]);
}

float bf16_to_float(std::uint16_t bits) {
  const std::uint32_t wide = std::uint32_t{bits} << 16U;
  float value = 0;
  std::memcpy(&value, &wide, sizeof value);
  return value;
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

double to_double(Dtype dtype, const std::byte* at) {
  if (dtype == Dtype::f32) return static_cast<double>(load<float>(at));
  if (dtype == Dtype::f64) return load<double>(at);
  return static_cast<double>(bf16_to_float(load<std::uint16_t>(at)));
}

bool is_float(Dtype dtype) { return dtype == Dtype::f32 || dtype == Dtype::f64 || dtype == Dtype::bf16; }

double unit_roundoff(Dtype dtype) {
  switch (dtype) {
    case Dtype::f64:
      return 0x1p-53;
    case Dtype::f32:
      return 0x1p-24;
    case Dtype::f16:
      return 0x1p-11;
    case Dtype::f8e4m3:
      return 0x1p-4;
    case Dtype::f8e5m2:
      return 0x1p-3;
    default:
      return 0x1p-8;  // bf16
  }
}
// The largest error of a value that is too small for a full mantissa.
double least_error(Dtype dtype) {
  return dtype == Dtype::f8e4m3   ? 0x1p-10
         : dtype == Dtype::f8e5m2 ? 0x1p-17
         : dtype == Dtype::f16    ? 0x1p-25
                                  : 0;
}

// Relative to the sum of magnitudes: each of at most `ranks` additions rounds a partial sum that is no larger.
// On the wire each of at most as many messages, and the result, round one as well.
double relative_error(const Flavour& flavour, std::uint32_t ranks) {
  const double sums = (ranks + 1.0) * unit_roundoff(flavour.dtype);
  return flavour.wire ? sums + std::pow(1 + unit_roundoff(*flavour.wire), ranks + 1.0) - 1 : sums;
}

}  // namespace

UserOp affine_op() { return {apply_affine, nullptr, false, 0}; }

ReduceOp op_of(const Flavour& flavour) {
  return flavour.op == Op::user ? ReduceOp::user_defined(affine_op()) : ReduceOp(flavour.op);
}

std::vector<std::byte> input_of(const Flavour& flavour, std::uint32_t rank, std::uint64_t first,
                                std::uint64_t count) {
  // Making elements is most of what many tests do, so the compiler knows their width.
  const auto make = [&](auto element_of) {
    using Element = decltype(element_of(std::uint64_t{}));
    std::vector<std::byte> bytes(count * sizeof(Element));
    for (std::uint64_t i = 0; i < count; ++i) {
      const Element element = element_of(hash(rank, first + i));
      std::memcpy(bytes.data() + i * sizeof element, &element, sizeof element);
    }
    return bytes;
  };
  switch (flavour.dtype) {
    case Dtype::f32:
      return make([scale = flavour.wire == Dtype::f8e4m3 ? 0x1p-28F : 0x1p-20F](std::uint64_t h) {
        return static_cast<float>(static_cast<std::int32_t>(h)) * scale;
      });
    case Dtype::f64:
      return make(
          [](std::uint64_t h) { return static_cast<double>(static_cast<std::int64_t>(h)) * 0x1p-40; });
    case Dtype::bf16:  // of either sign, 0.5 to 2
      return make([](std::uint64_t h) { return static_cast<std::uint16_t>(0x3F00U | (h & 0x80FFU)); });
    case Dtype::i64:
      return make([](std::uint64_t h) { return h; });
    case Dtype::i32:
    case Dtype::u32:
      return make([](std::uint64_t h) { return static_cast<std::uint32_t>(h); });
    default:
      throw std::logic_error(fmt::format("no input for {}", flavour.name));
  }
}

Reference reduce_ranks(const Flavour& flavour, std::uint32_t ranks, std::uint64_t count) {
  const std::size_t width = size_of(flavour.dtype);
  Reference reference;
  if (is_float(flavour.dtype)) {
    reference.value.assign(count, 0);
    reference.tolerance.assign(count, 0);
  } else {
    reference.exact.assign(count * width, std::byte{0});
  }
  for (std::uint32_t r = 0; r < ranks; ++r) {
    const std::vector<std::byte> input = input_of(flavour, r, 0, count);
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::byte* at = input.data() + i * width;
      if (is_float(flavour.dtype)) {
        const double value = to_double(flavour.dtype, at);
        reference.value[i] += value;
        reference.tolerance[i] += std::fabs(value) * relative_error(flavour, ranks);
        if (flavour.wire) reference.tolerance[i] += 2 * least_error(*flavour.wire);
        continue;
      }
      std::byte* into = reference.exact.data() + i * width;
      if (r == 0) {
        std::memcpy(into, at, width);
      } else if (flavour.op == Op::user) {
        const std::uint32_t both = compose(load<std::uint32_t>(into), load<std::uint32_t>(at));
        std::memcpy(into, &both, width);
      } else if (flavour.op == Op::max) {
        const std::int64_t larger = std::max(load<std::int64_t>(into), load<std::int64_t>(at));
        std::memcpy(into, &larger, width);
      } else {
        const std::uint32_t sum = load<std::uint32_t>(into) + load<std::uint32_t>(at);
        std::memcpy(into, &sum, width);
      }
    }
  }
  return reference;
}

std::string compare(const Flavour& flavour, const Reference& expected, std::uint64_t first,
                    const std::byte* found, std::uint64_t count) {
  const std::size_t width = size_of(flavour.dtype);
  if (!is_float(flavour.dtype)) {
    if (count == 0 || std::memcmp(expected.exact.data() + first * width, found, count * width) == 0)
      return {};
    for (std::uint64_t i = 0; i < count; ++i) {
      if (std::memcmp(expected.exact.data() + (first + i) * width, found + i * width, width) != 0) {
        return fmt::format("element {} of {} differs", i, count);
      }
    }
  }
  for (std::uint64_t i = 0; i < count; ++i) {
    const double value = to_double(flavour.dtype, found + i * width);
    if (!(std::fabs(value - expected.value[first + i]) <= expected.tolerance[first + i])) {
      return fmt::format("element {} of {} is {}, expected {} within {}", i, count, value,
                         expected.value[first + i], expected.tolerance[first + i]);
    }
  }
  return {};
}

const Reference& ReferenceCache::get(const Flavour& flavour, std::uint32_t ranks, std::uint64_t count) {
  const std::lock_guard lock(mutex_);
  auto& made = made_[{&flavour, ranks, count}];
  if (made == nullptr) made = std::make_unique<Reference>(reduce_ranks(flavour, ranks, count));
  return *made;
}

Hierarchy domains_of(std::uint32_t p) {
  std::vector<std::uint32_t> labels;
  for (std::uint32_t rank = 0; rank < p; ++rank) {
    switch (p) {
      case 3:
        labels.push_back(rank == 0 ? 0 : 1);  // 1, 2
        break;
      case 5:
        labels.push_back(rank % 2);  // 0 2 4, 1 3
        break;
      case 7:
        labels.push_back(rank / 2 == 3 ? 2 : rank / 2);  // 2, 2, 3
        break;
      default:
        labels.push_back(rank * 2 / std::max(p, 1U));  // halves
    }
  }
  return Hierarchy(labels);
}

}  // namespace tutti::test
