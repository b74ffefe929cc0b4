// Parts of an explanation that host memory and GPUs have in common: the selector's answer with its trail, and
// the words for items that were passed over. Knows no algorithm's price.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/selection/selection.hpp"

namespace tutti {

struct TracedChoice {
  Selection chosen;
  std::vector<Consideration> trail;
  std::string rule;  // the item that decided, in the grammar of rules; empty: an argument, or nothing
};
// Errors: those of Selector::choose.
Result<TracedChoice> choose_with_trail(const Selector& selector, const Question& question,
                                       std::string_view argument);

// "RULES item 2 (nccl) comes later"
std::string why_of_item(const Consideration& seen);

// Why items that were not chosen were passed over, joined by "; ". `is_meant`: selects items.
template <class IsMeant>
std::string notes(const std::vector<Consideration>& trail, IsMeant is_meant) {
  std::string text;
  for (const Consideration& seen : trail) {
    if (is_meant(*seen.item) && seen.verdict != Consideration::Verdict::chosen)
      text += (text.empty() ? "" : "; ") + why_of_item(seen);
  }
  return text;
}

// "predicted 12 % slower; ", of `own` picoseconds against the chosen one's.
std::string versus(std::uint64_t own_ps, std::uint64_t chosen_ps);

}  // namespace tutti
