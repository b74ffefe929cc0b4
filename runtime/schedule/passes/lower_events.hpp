// First half of the lowering: decides the loads and stores, and their global order. Internal to passes/.
// Knows no signal and no wait; lower.cpp adds them.
#pragma once

#include <span>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti::detail {

// One local step of the lowered program. Slices of another rank's memory carry its rank as owner.
struct LoweredEvent {
  std::uint32_t rank = 0;  // who executes it
  Verb verb = Verb::copy;  // copy or reduce
  std::uint16_t channel = 0;
  Slice dst;
  std::vector<Slice> sources;
};

// The loads and stores of all ranks in an order that respects every data dependency of the schedules:
// executed in sequence they compute the same values. Without `may_place` no rank stores into another rank's
// memory.
Result<std::vector<LoweredEvent>> lower_to_events(std::span<const Schedule> ranks, bool may_place);

}  // namespace tutti::detail
