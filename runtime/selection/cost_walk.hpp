// The walk of schedules in virtual time that cost.hpp prices with. Knows steps and what they cost, no row of
// the catalogue.
#pragma once

#include <cstdint>
#include <span>

#include "runtime/base/status.hpp"
#include "runtime/selection/cost.hpp"

namespace tutti::detail {

// 1024 bytes at a time, so that no product overflows.
constexpr std::uint64_t of_kib(std::uint64_t bytes, std::uint64_t kib_ps) {
  return bytes / 1024 * kib_ps + bytes % 1024 * kib_ps / 1024;
}

Result<Price> walk_all(std::span<const Schedule> ranks, std::uint64_t bytes, const Places& places,
                       const CostModel& model);

// One rank's schedule where it stands for all: `distances` holds for each step how far its peer is, the same
// on both sides of a message. What it sends to some distance arrives, as far as time goes, from that
// distance.
Result<Price> walk_one(const Schedule& schedule, std::span<const std::uint32_t> distances,
                       std::uint64_t bytes, const Places& places, const CostModel& model);

}  // namespace tutti::detail
