// The walk of schedules in virtual time that cost.hpp prices with. Knows steps and what they cost, no row of
// the catalogue.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/selection/cost.hpp"
#include "runtime/selection/step_graph.hpp"

namespace tutti::detail {

// 1024 bytes at a time, so that no product overflows.
constexpr std::uint64_t of_kib(std::uint64_t bytes, std::uint64_t kib_ps) {
  return bytes / 1024 * kib_ps + bytes % 1024 * kib_ps / 1024;
}

// Either all ranks' schedules, or those of the first k ranks, which stand for all. Then ranks r + k, r + 2k,
// ... do by that symmetry the same as rank r, and are placed alike. A message to a missing rank arrives at
// the rank that stands for it, after the same time.
Result<Price> walk(std::span<const Schedule> ranks, Symmetry symmetry, std::uint64_t bytes,
                   const Places& places, const CostModel& model,
                   std::vector<std::vector<std::uint64_t>>* ends = nullptr);

}  // namespace tutti::detail
