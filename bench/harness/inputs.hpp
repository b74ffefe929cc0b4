// Inputs whose collective result is exact in the dtype, poisoned outputs and the comparison bit by bit. Knows
// no library under test and no clock. Expected values are computed in 64-bit integers and encoded here, so
// that the check shares no code with the kernels under test.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include "bench/harness/harness.hpp"
#include "runtime/base/types.hpp"

namespace tutti::bench {

// The byte that outputs are filled with before a checked call; no exact result below consists of it.
inline constexpr unsigned char kPoison = 0xA5;

namespace detail {

inline std::uint32_t mix(std::uint32_t a, std::uint32_t b) {
  std::uint32_t x = a * 0x9E3779B1u + b * 0x85EBCA77u + 0x27D4EB2Fu;
  x ^= x >> 15;
  x *= 0x2C1B3C6Du;
  x ^= x >> 12;
  return x;
}

// The largest n such that all integers 0..n are values of the dtype.
constexpr std::int64_t exact_limit(Dtype dtype) {
  switch (dtype) {
    case Dtype::i8:
      return 127;
    case Dtype::u8:
      return 255;
    case Dtype::f16:
      return 2048;
    case Dtype::bf16:
      return 256;
    case Dtype::f8e4m3:
      return 16;
    case Dtype::f8e5m2:
      return 8;
    case Dtype::boolean:
      return 1;
    case Dtype::i16:
    case Dtype::u16:
      return 32767;
    default:
      return 1 << 24;
  }
}

// Bits of a binary floating-point format for an integer that it represents exactly (normal numbers and zero
// only).
inline std::uint64_t encode_float(std::int64_t value, int exponent_bits, int mantissa_bits) {
  if (value == 0) return 0;
  const std::uint64_t sign = value < 0 ? 1 : 0;
  const auto magnitude = static_cast<std::uint64_t>(value < 0 ? -value : value);
  int exponent = 0;
  while ((magnitude >> exponent) > 1) ++exponent;
  const std::uint64_t fraction = magnitude - (std::uint64_t{1} << exponent);
  const std::uint64_t mantissa = exponent <= mantissa_bits ? fraction << (mantissa_bits - exponent)
                                                           : fraction >> (exponent - mantissa_bits);
  const auto biased = static_cast<std::uint64_t>(exponent + (1 << (exponent_bits - 1)) - 1);
  return (((sign << exponent_bits) | biased) << mantissa_bits) | mantissa;
}

// Writes the element of `dtype` that equals `value` (little-endian host).
inline void encode(Dtype dtype, std::int64_t value, unsigned char* to) {
  std::uint64_t bits = static_cast<std::uint64_t>(value);
  switch (dtype) {
    case Dtype::f16:
      bits = encode_float(value, 5, 10);
      break;
    case Dtype::bf16:
      bits = encode_float(value, 8, 7);
      break;
    case Dtype::f32:
      bits = encode_float(value, 8, 23);
      break;
    case Dtype::f64:
      bits = encode_float(value, 11, 52);
      break;
    case Dtype::f8e4m3:
      bits = encode_float(value, 4, 3);
      break;
    case Dtype::f8e5m2:
      bits = encode_float(value, 5, 2);
      break;
    case Dtype::boolean:
      bits = value != 0 ? 1 : 0;
      break;
    default:
      break;
  }
  std::memcpy(to, &bits, size_of(dtype));
}

}  // namespace detail

// The values that ranks contribute. They are periodic in the element index with a prime period, so that
// blocks and segments of any power of two have different values. The seed shifts them, so that each rewrite
// changes the peers' results. A sum in any order stays within the integers that the dtype holds exactly.
class Inputs {
 public:
  // `factor` is what premul_sum multiplies each contribution by.
  Inputs(Dtype dtype, Op op, int ranks, int factor = 2)
      : dtype_(dtype), op_(op), ranks_(ranks), factor_(factor) {}

  // False where too many ranks meet too small a dtype for an exact result (avg in 8 bits); the check is then
  // no proof.
  bool is_exact() const {
    return op_ != Op::avg || static_cast<std::int64_t>(ranks_) * 2 <= detail::exact_limit(dtype_);
  }

  // The element that `rank` contributes at position `phase` of the period.
  // Many decisions: one for each op.
  std::int64_t value(int rank, std::size_t phase) const {
    const auto random = detail::mix(static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(phase));
    const std::int64_t limit = detail::exact_limit(dtype_);
    const auto p = static_cast<std::int64_t>(ranks_);
    const std::int64_t position = (rank + static_cast<std::int64_t>(phase)) % p;
    const bool is_rare = random % static_cast<std::uint32_t>(ranks_) == 0;  // about one rank of all
    switch (op_) {
      case Op::prod:
        return position < 3 && limit > 1 ? 2 : 1;
      case Op::min:
      case Op::max:
      case Op::bxor:
        return random % static_cast<std::uint32_t>(std::min<std::int64_t>(limit, 15) + 1);
      case Op::avg:
        return p == 1 || limit == 1 || position > 1 ? 1 : (position == 0 ? 2 : 0);  // mean 1
      case Op::band:
        return is_rare ? 15 & ~(1 << (random / 64 % 4)) : 15;
      case Op::bor:
        return is_rare ? 1 << (random / 64 % 4) : 0;
      case Op::land:
        return is_rare ? 0 : 1;
      case Op::lor:
        return is_rare ? 1 : 0;
      case Op::lxor:
        return random % 2;
      default:
        break;
    }
    const std::int64_t weight = p * (op_ == Op::premul_sum ? factor_ : 1);
    if (limit >= weight)
      return random % static_cast<std::uint32_t>(std::min<std::int64_t>(limit / weight, 15) + 1);
    const std::int64_t stride = (weight + limit - 1) / limit;  // too many ranks: only some contribute
    return (rank + static_cast<std::int64_t>(phase)) % stride == 0 ? 1 : 0;
  }

  // Elements [first, first + count) of what `rank` contributes in the rewrite `seed`.
  void fill(void* data, std::size_t count, int rank, std::size_t first, std::uint64_t seed) {
    if (rank != table_rank_) {
      make_table([&](std::size_t phase) { return value(rank, phase); }, kRepeat, table_);
      table_rank_ = rank;
    }
    visit(table_, count, first, seed, [&](std::size_t at, const unsigned char* from, std::size_t bytes) {
      std::memcpy(static_cast<unsigned char*>(data) + at, from, bytes);
    });
  }

  // Wrong elements in `data`, which should hold elements [first, ...) of rank `source`'s contribution.
  std::size_t wrong_copied(const void* data, std::size_t count, int source, std::size_t first,
                           std::uint64_t seed) const {
    return wrong(data, count, first, seed, [&](std::size_t phase) { return value(source, phase); });
  }

  // Wrong elements in `data`, which should hold elements [first, ...) of the reduction over ranks
  // 0..rank_count-1.
  std::size_t wrong_reduced(const void* data, std::size_t count, int rank_count, std::size_t first,
                            std::uint64_t seed) const {
    return wrong(data, count, first, seed, [&](std::size_t phase) { return reduced(rank_count, phase); });
  }

 private:
  static constexpr std::size_t kPeriod = 251;
  static constexpr std::size_t kRepeat = 16;  // a table long enough for copies at the speed of memory
  static constexpr std::size_t kSeedStep = 17;

  std::int64_t reduced(int rank_count, std::size_t phase) const {
    std::int64_t result = value(0, phase) * (op_ == Op::premul_sum ? factor_ : 1);
    for (int rank = 1; rank < rank_count; ++rank) {
      const std::int64_t next = value(rank, phase);
      switch (op_) {
        case Op::prod:
          result *= next;
          break;
        case Op::min:
          result = std::min(result, next);
          break;
        case Op::max:
          result = std::max(result, next);
          break;
        case Op::band:
          result &= next;
          break;
        case Op::bor:
          result |= next;
          break;
        case Op::bxor:
          result ^= next;
          break;
        case Op::land:
          result = result != 0 && next != 0 ? 1 : 0;
          break;
        case Op::lor:
          result = result != 0 || next != 0 ? 1 : 0;
          break;
        case Op::lxor:
          result = (result != 0) != (next != 0) ? 1 : 0;
          break;
        case Op::premul_sum:
          result += next * factor_;
          break;
        default:
          result += next;
          break;
      }
    }
    return op_ == Op::avg ? result / rank_count : result;
  }

  template <class Value>
  void make_table(Value&& value_at, std::size_t repeat, std::vector<unsigned char>& table) const {
    const std::size_t element = size_of(dtype_);
    table.resize(kPeriod * repeat * element);
    for (std::size_t i = 0; i < kPeriod * repeat; ++i) {
      if (i < kPeriod) {
        detail::encode(dtype_, value_at(i), &table[i * element]);
      } else {
        std::memcpy(&table[i * element], &table[(i - kPeriod) * element], element);
      }
    }
  }

  // Calls visitor(byte offset, expected bytes, how many) for consecutive pieces of the range.
  template <class Visitor>
  void visit(const std::vector<unsigned char>& table, std::size_t count, std::size_t first,
             std::uint64_t seed, Visitor&& visitor) const {
    const std::size_t element = size_of(dtype_);
    std::size_t phase = (first + static_cast<std::size_t>(seed % kPeriod) * kSeedStep) % kPeriod;
    for (std::size_t done = 0; done < count;) {
      const std::size_t piece = std::min(count - done, table.size() / element - phase);
      visitor(done * element, table.data() + phase * element, piece * element);
      done += piece;
      phase = (phase + piece) % kPeriod;
    }
  }

  template <class Value>
  std::size_t wrong(const void* data, std::size_t count, std::size_t first, std::uint64_t seed,
                    Value&& value_at) const {
    std::vector<unsigned char> table;
    make_table(value_at, 1, table);
    const std::size_t element = size_of(dtype_);
    std::size_t wrong_count = 0;
    visit(table, count, first, seed, [&](std::size_t at, const unsigned char* expected, std::size_t bytes) {
      const unsigned char* got = static_cast<const unsigned char*>(data) + at;
      if (std::memcmp(got, expected, bytes) == 0) return;
      for (std::size_t i = 0; i < bytes; i += element) {
        if (std::memcmp(got + i, expected + i, element) != 0) ++wrong_count;
      }
    });
    return wrong_count;
  }

  Dtype dtype_;
  Op op_;
  int ranks_;
  std::int64_t factor_;
  int table_rank_ = -1;
  std::vector<unsigned char> table_;  // what table_rank_ contributes
};

// This rank's whole input for one call (Shape::input_count elements).
inline void fill_input(Inputs& inputs, const Shape& shape, int rank, std::uint64_t seed, void* input) {
  inputs.fill(input, shape.input_count(rank), rank, 0, seed);
}

// Elements of this rank's output (Shape::output_count of them) whose bits differ from the exact result.
// exscan leaves rank 0's output undefined, so nothing is compared there.
inline std::size_t wrong_elements(const Inputs& inputs, const Shape& shape, int rank, std::uint64_t seed,
                                  const void* output) {
  const std::size_t count = shape.output_count(rank);
  const std::size_t block = shape.block_count();
  const std::size_t block_first = static_cast<std::size_t>(rank) * block;
  const auto* out = static_cast<const unsigned char*>(output);
  std::size_t wrong = 0;
  switch (shape.collective) {
    case Collective::allreduce:
    case Collective::reduce:
      return inputs.wrong_reduced(out, count, shape.ranks, 0, seed);
    case Collective::reduce_scatter:
      return inputs.wrong_reduced(out, count, shape.ranks, block_first, seed);
    case Collective::scan:
      return inputs.wrong_reduced(out, count, rank + 1, 0, seed);
    case Collective::exscan:
      return rank == 0 ? 0 : inputs.wrong_reduced(out, count, rank, 0, seed);
    case Collective::broadcast:
      return inputs.wrong_copied(out, count, shape.root, 0, seed);
    case Collective::scatter:
      return inputs.wrong_copied(out, count, shape.root, block_first, seed);
    case Collective::allgather:
    case Collective::gather:
    case Collective::alltoall:
      if (count == 0) return 0;
      for (int source = 0; source < shape.ranks; ++source) {
        const std::size_t first = shape.collective == Collective::alltoall ? block_first : 0;
        const std::size_t offset = static_cast<std::size_t>(source) * block * size_of(shape.dtype);
        wrong += inputs.wrong_copied(out + offset, block, source, first, seed);
      }
      return wrong;
    default:
      return 0;
  }
}

}  // namespace tutti::bench
