// Symbolic values of the verifier: what a location holds, in one of three algebras.
// Knows no schedule and no ranks' programs, only how contributions combine.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/schedule/verify.hpp"

namespace tutti::detail {

// A value; 0 is "nobody wrote this". Values 1 .. ranks * atoms are the contributions themselves and need no
// storage; the others are entries of the table.
using Value = std::uint32_t;
inline constexpr Value kUnwritten = 0;

class ValueTable {
 public:
  // is_idempotent: contributions are arrivals (barrier), adding one twice is no mistake; order never matters.
  ValueTable(Algebra algebra, bool is_idempotent, std::uint32_t ranks, std::uint32_t atoms);

  Value contribution(std::uint32_t rank, std::uint32_t atom) const { return 1 + rank * atoms_ + atom; }
  // The atom a value belongs to: that of its contributions.
  std::uint32_t atom_of(Value v) const;
  // left + right, or kUnwritten with the reason in `why` ("adds the contribution of rank 1 a second time").
  Value add(Value left, Value right, std::string& why);
  // The value in the wire dtype. Rounding twice is rounding once. Only expressions tell the two apart.
  Value round(Value v);
  // The most roundings on the way from a contribution to the value. (Of expressions.)
  std::uint32_t roundings(Value v) const {
    return v == kUnwritten || is_contribution(v) ? 0 : entry(v).roundings;
  }
  // Is v the combination of ranks [first, last), each once, of that atom? (Never asked of expressions.)
  bool is_range(Value v, std::uint32_t first, std::uint32_t last, std::uint32_t atom) const;
  // "the contributions of ranks 0-2 and 5", or the tree.
  std::string describe(Value v) const;

 private:
  struct Entry {
    std::uint32_t atom = 0;
    std::uint32_t first =
        0;  // word: first rank; expression: left child, kUnwritten if rounded; multiset: index of bits
    std::uint32_t last = 0;  // word: one past the last rank; expression: right child
    std::uint32_t roundings = 0;
  };

  bool is_contribution(Value v) const { return v <= ranks_ * atoms_; }
  std::uint32_t rank_of(Value v) const { return (v - 1) / atoms_; }
  const Entry& entry(Value v) const { return entries_[v - 1 - ranks_ * atoms_]; }
  Value append(const Entry& e);
  std::uint64_t bits(Value v, std::uint32_t word) const;
  Value add_sets(Value left, Value right, std::string& why);
  Value add_words(Value left, Value right, std::string& why);
  Value add_trees(Value left, Value right);

  Algebra algebra_;
  bool is_idempotent_;
  std::uint32_t ranks_, atoms_, words_;
  std::vector<Entry> entries_;
  std::vector<std::uint64_t> bits_;
  std::unordered_map<std::uint64_t, Value> trees_;  // hash-consing: (smaller child, larger child) -> value
};

// "0-2, 5": the numbers for which `has` is true, as ranges.
std::string describe_ranges(const std::vector<bool>& has);

}  // namespace tutti::detail
