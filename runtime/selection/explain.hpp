// Why a call runs the algorithm that it runs: every row of the catalogue with what it would cost, and what
// the rules had to say. Knows no settings and no output; asks Selector::choose, as every call does.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/selection/cost.hpp"
#include "runtime/selection/selection.hpp"

namespace tutti {

struct Candidate {
  const AlgorithmRow* row = nullptr;
  AlgorithmParams params;      // of the settings that were tried, the ones that are predicted fastest
  std::optional<Price> price;  // none where it may not run, or is too large to walk
  bool is_legal = false, is_chosen = false;
  // Of the chosen one, the rule; of the others, why not. Of candidates without a price also why.
  std::string reason;
};

struct Explanation {
  Selection chosen;
  std::string rule;  // the item that decided, in the grammar of rules; empty: an argument
  std::vector<Candidate>
      candidates;  // the fastest first; then what could not be priced, then what is illegal
};

// The setting of the question, besides the choice: the machine, and whether calls of this group run through
// shared memory.
struct Setting {
  Places places;
  CostModel model;
  bool is_lowered = false;
};

// Errors: those of Selector::choose.
Result<Explanation> explain(const Selector& selector, const Question& question, std::string_view argument,
                            const Setting& setting);

// The settings of a row's parameters that are worth a look: its default, then others, one parameter changed
// at a time. Equal everywhere.
std::vector<AlgorithmParams> sample_params(const AlgorithmRow& row);

}  // namespace tutti
