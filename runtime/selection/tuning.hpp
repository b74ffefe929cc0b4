// The tuning file as a value: which machine and job it was measured on, rules, and measured costs. Knows the
// text of such a file, but not where files lie, who writes them and what machine this is.
//
//   {
//     "tutti_tuning": 1,
//     "origin": "tutti tune --budget 3m, 2026-03-01",
//     "fingerprint": {
//       "cpu": "Intel(R) Xeon(R) Platinum 8480+",
//       "machine": "2 sockets, 112 cores, ...",
//       "node": "shm"
//     },
//     "rules": {
//       "allreduce": [
//         "recursive_doubling:-8k@4",
//         "ring(segment=256k):1m-@4"
//       ],
//       "allreduce across nodes": [
//         "rabenseifner:16k-@8-"
//       ]
//     },
//     "costs": {
//       "shm": {"call_ps": 0, "reduce_kib_ps": 0, "copy_kib_ps": 0, "cache": [0, 0, 0, 0, 0, 0, 0, 0],
//         "node": [0, 0, 0, 0, 0, 0, 0, 0], "network": [0, 0, 0, 0]}
//     },
//     "fusion": {
//       "4": {"bytes": 16777216, "cycle_us": 2500}
//     }
//   }
//
// A rule is one item of the grammar in rules.hpp. "allreduce" is for groups on one node, "allreduce across
// nodes" for those that span several, "allreduce anywhere" for both. The figures of a level are the four members
// of LinkCost and the four of LineCost, in their order; of the network, and in files of older releases, only the
// first four. Levels without figures are left out. "fusion" is for named tensors, by the number of ranks.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/fusion_tuning.hpp"
#include "runtime/base/status.hpp"
#include "runtime/selection/cost.hpp"
#include "runtime/selection/selection.hpp"

namespace tutti {

inline constexpr std::uint64_t kTuningVersion = 1;

// Names and values, in order. Empty: fits anywhere.
using Fingerprint = std::vector<std::pair<std::string, std::string>>;

// Why a measurement from there must not be used here: the first name that both have, with other values; empty
// if it may be used. Names that only one of them has do not count: a job on one node has no network.
std::string describe_difference(const Fingerprint& there, const Fingerprint& here);

struct TuningItem {
  std::string text;        // one item of a rule
  std::uint32_t line = 0;  // of the file it was read from; 0: of none
  bool operator==(const TuningItem&) const = default;
};

// The rules of a collective, in order: the first that matches wins.
struct TuningRules {
  Collective collective = Collective::allreduce;
  std::optional<Reach> reach;  // of the groups they are for; nullopt: all
  std::vector<TuningItem> items;
  bool operator==(const TuningRules&) const = default;
};

struct Tuning {
  std::string origin;  // who made it and when, for people
  Fingerprint fingerprint;
  std::vector<TuningRules> rules;                // at most one of a collective and reach
  std::map<std::string, CostModel> costs;        // by transport: measured
  std::map<std::uint32_t, FusionTuning> fusion;  // by the number of ranks: measured

  // The rules of a collective and reach; made if there are none.
  TuningRules& rules_of(Collective collective, std::optional<Reach> reach);
  bool operator==(const Tuning&) const = default;
};

// Errors: invalid_argument; "<file> line L column C: ...", also where a rule is wrong.
Result<Tuning> parse_tuning(std::string_view text, std::string_view file);
// Parsing it gives the value again, but for the lines. One rule on each line.
std::string to_text(const Tuning& tuning);

// The arguments of Selector::make(), in order of precedence: rules for the reach before those for all. `file`
// is the source that choices name.
std::vector<RuleText> rule_texts(const Tuning& tuning, std::string_view file);

}  // namespace tutti
