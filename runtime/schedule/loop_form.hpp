// The loop form of a schedule: repetition found and written once, so that a ring of any size is O(1) long.
// Knows nothing of algorithms: it looks at steps only.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

// A slice and the increments of its numbers from one turn to the next: first modulo the grid, owner modulo
// the size of the group, slot without a modulus.
struct LoopSlice {
  Slice slice;
  std::uint32_t first_advance = 0;
  std::uint32_t owner_advance = 0;
  std::int64_t slot_advance = 0;
  bool operator==(const LoopSlice&) const = default;
};

// A dependency of a step in a loop: the number of steps back, and its increment per turn (two loops of
// unequal bodies drift apart).
struct LoopDependency {
  std::uint32_t back = 0;
  std::int64_t advance = 0;
  bool operator==(const LoopDependency&) const = default;
};

// A step of a loop body, as it is in the first turn. Its index ranges are not used.
struct LoopStep {
  Step step;
  LoopSlice dst;
  std::vector<LoopSlice> sources;
  std::vector<LoopDependency> dependencies;
  std::uint32_t fused_ahead = 0;   // distance to the step it is fused with, 0: none
  std::uint32_t peer_advance = 0;  // modulo the size of the group
  std::int64_t sequence_advance = 0;
  bool operator==(const LoopStep&) const = default;
};

// `turns` times the body; one turn of one step is a plain step.
struct Loop {
  std::uint32_t turns = 1;
  std::vector<LoopStep> body;
};

struct RolledSchedule {
  Schedule header;  // without steps
  std::vector<Loop> loops;
};

// Finds repetition: bodies of up to 16 steps, at least 3 turns, greedily from the front.
RolledSchedule roll(const Schedule& schedule, bool find_loops = true);
// unroll(roll(s)) == s for every schedule whose sources and dependencies lie in the order of its steps, as
// the builder and the passes leave them. Errors: invalid_argument if a number leaves its range, for more than
// kMaxSteps steps, and for more than four times as many sources or dependencies.
Result<Schedule> unroll(const RolledSchedule& rolled);
inline constexpr std::uint64_t kMaxSteps = 1ULL << 20;
// The most atoms, slots and ranks that a schedule in text form may have.
inline constexpr std::uint32_t kMaxGrid = 1U << 24;

}  // namespace tutti
