// The catalogue: the one list of algorithms that exist, when each is legal, what it costs and what it
// promises. Knows no transport, no clock and no environment. Selection, `tutti info`, tests, tuner and
// documentation all read it.
#pragma once

#include <span>
#include <string_view>

#include "runtime/base/status.hpp"
#include "runtime/schedule/builder.hpp"

namespace tutti {

// Emits one rank's schedule. Pure: equal arguments give an equal Schedule; no allocation but the result.
// A function type, so that catalog.cpp declares an algorithm as `Emit allreduce_ring;`.
using Emit = Result<Schedule>(const CollectiveSpec& spec, const GroupView& view,
                              const AlgorithmParams& params);

// The cost that a row claims; tests compare it with the emitted schedule. Rounds are the longest chain of
// messages. sent_blocks is the most that one rank sends, in blocks of a vector of `blocks` blocks: bytes sent
// = sent_blocks / blocks * m, m the full vector.
struct Claim {
  std::uint64_t rounds = 0;
  std::uint64_t sent_blocks = 0;
  std::uint64_t blocks = 1;
  // Hierarchical rows only. The most that leaves one domain for others, in blocks (with mates=1: one joined domain); and
  // whether rounds and sent_blocks are upper bounds instead of exact.
  std::uint64_t crossing_blocks = 0;
  bool is_bound = false;
  bool is_crossing_bound = false;  // and crossing_blocks
};
using ClaimOf = Claim(std::uint32_t p, const AlgorithmParams& params);
using HierarchyClaim = Claim(const Hierarchy& hierarchy, const AlgorithmParams& params);

// Conditions under which a row may run. The tests prove a row for every p, root and placement that it allows.
struct Legality {
  bool needs_commutative = false;  // combines contributions out of rank order
  bool needs_power_of_two = false;
  bool needs_even = false;         // p even (or 1)
  bool equal_counts_only = false;  // not for v-variants
  bool is_out_of_place_only = false;
  std::uint32_t max_size = 0;  // largest p; 0 = no limit
  // Runs over domains (a hierarchy that is not flat); combines domain by domain, so that an op that does not
  // commute needs domains of neighbours.
  bool needs_hierarchy = false;
};

// One knob of a row: the name used in rules ("radix"), the field it sets, and its default and limits.
struct ParamRow {
  std::string_view name;
  std::uint32_t AlgorithmParams::*field = nullptr;
  std::uint32_t default_value = 0;
  std::uint32_t min_value = 0;
  std::uint32_t max_value = 0;
  bool is_pass =
      false;  // carried out by a pass over the finished schedule (segment), not by the algorithm itself
};

struct AlgorithmRow {
  Collective collective;
  std::string_view name;
  Emit* emit;
  ClaimOf* claim;  // null where the row has a hierarchy_claim
  Legality legality;
  bool same_bits;            // every rank gets bitwise the same result (meaningful for reducing collectives)
  std::string_view cost;     // "rounds 2(p-1); bytes sent 2(p-1)/p m", m the full vector
  std::string_view summary;  // one line for people
  std::span<const ParamRow> params = {};
  HierarchyClaim* hierarchy_claim = nullptr;  // exactly where legality.needs_hierarchy
};

std::span<const AlgorithmRow> catalog();
// The row of that collective and name, or null.
const AlgorithmRow* find_algorithm(Collective collective, std::string_view name);
// Why the row cannot run a group of p ranks with this op, placement and hierarchy (null: flat); ok if it can.
Status check_legality(const AlgorithmRow& row, std::uint32_t p, bool is_commutative, bool in_place,
                      bool has_equal_counts, const Hierarchy* hierarchy = nullptr);
// The same as a yes or no. Does not allocate.
bool may_run(const AlgorithmRow& row, std::uint32_t p, bool is_commutative, bool in_place,
             bool has_equal_counts, const Hierarchy* hierarchy = nullptr);
// The row's claim, of whichever kind it is; the row is legal there.
Claim claim_of(const AlgorithmRow& row, std::uint32_t p, const AlgorithmParams& params,
               const Hierarchy* hierarchy);
// Has the row a parameter that a pass over the finished schedule carries out (schedule/passes/segment.hpp)?
bool has_segment_pass(const AlgorithmRow& row);
// The row's parameters at their defaults.
AlgorithmParams default_params(const AlgorithmRow& row);
// A number that no other parameters within the catalogue's limits have.
std::uint64_t pack(const AlgorithmParams& params);

}  // namespace tutti
