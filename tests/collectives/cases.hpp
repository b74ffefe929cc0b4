// Inputs, serial references and comparison for whole collectives: what every rank holds before, and must hold
// after, a call.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/schedule/hierarchy.hpp"

namespace tutti::test {

// An element type and operation to test with. For floats results are compared within a stated bound, for
// others bit for bit.
struct Flavour {
  const char* name;
  Dtype dtype;
  Op op;
  bool is_commutative;
  std::optional<Dtype> wire = {};  // of its messages
};
inline constexpr Flavour kFlavours[] = {
    {"i32 sum", Dtype::i32, Op::sum, true}, {"affine maps (user op)", Dtype::u32, Op::user, false},
    {"f32 sum", Dtype::f32, Op::sum, true}, {"bf16 sum", Dtype::bf16, Op::sum, true},
    {"f64 sum", Dtype::f64, Op::sum, true}, {"i64 max", Dtype::i64, Op::max, true},
};

// Sums of f32 whose messages travel in another dtype. The inputs of f8e4m3 are small enough for its range.
inline constexpr Flavour kWireFlavours[] = {
    {"f32 sum, bf16 on the wire", Dtype::f32, Op::sum, true, Dtype::bf16},
    {"f32 sum, f16 on the wire", Dtype::f32, Op::sum, true, Dtype::f16},
    {"f32 sum, f8e4m3 on the wire", Dtype::f32, Op::sum, true, Dtype::f8e4m3},
    {"f32 sum, f8e5m2 on the wire", Dtype::f32, Op::sum, true, Dtype::f8e5m2},
};

// Composition of affine maps x -> a x + b modulo 2^16, packed as a << 16 | b: associative, not commutative.
UserOp affine_op();
ReduceOp op_of(const Flavour& flavour);

// The input of a rank: `count` elements starting with element `first` of an endless sequence that depends on
// (rank, index).
std::vector<std::byte> input_of(const Flavour& flavour, std::uint32_t rank, std::uint64_t first,
                                std::uint64_t count);

// Element-wise combination of ranks [0, ranks) in rank order, and the largest possible rounding error of each
// element.
struct Reference {
  std::vector<std::byte> exact;   // integers: the result
  std::vector<double> value;      // floats: the sum in f64
  std::vector<double> tolerance;  // floats: bound on |result - value|, for any order of additions
};
Reference reduce_ranks(const Flavour& flavour, std::uint32_t ranks, std::uint64_t count);

// "" if `count` elements at `found` are what the reference holds from element `first` on; else what differs.
std::string compare(const Flavour& flavour, const Reference& expected, std::uint64_t first,
                    const std::byte* found, std::uint64_t count);

// The domains of a world of p ranks, so that hierarchical rows are tried, too: even, uneven and with a domain
// of one by p, and dealt out in turn for 5. Flat for 1 and 2.
Hierarchy domains_of(std::uint32_t p);

// References by (flavour, ranks, count), computed once by whoever asks first. Thread-safe.
class ReferenceCache {
 public:
  const Reference& get(const Flavour& flavour, std::uint32_t ranks, std::uint64_t count);

 private:
  std::mutex mutex_;
  std::map<std::tuple<const Flavour*, std::uint32_t, std::uint64_t>, std::unique_ptr<Reference>> made_;
};

}  // namespace tutti::test
