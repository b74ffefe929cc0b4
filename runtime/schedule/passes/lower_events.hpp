// First half of the lowering: which loads and stores happen, and in which global order. Internal to passes/.
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

// The loads and stores of all ranks in an order that respects every data dependency of the schedules: run one
// after the other they compute what the schedules compute. Without `may_place` nobody stores into another
// rank's memory.
Result<std::vector<LoweredEvent>> lower_to_events(std::span<const Schedule> ranks, bool may_place);

}  // namespace tutti::detail
