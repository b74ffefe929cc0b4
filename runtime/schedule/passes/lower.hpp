// Lowering for ranks that share memory: sends and receives become loads and stores on each other's memory,
// ordered by signal and wait. Knows no address and no cache line.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

// Lowering looks at all ranks' schedules at once; beyond so many ranks in one memory it takes too long for a
// first call, and those who run schedules do without.
inline constexpr std::uint32_t kMostLoweredRanks = 64;

// What of each other's memory ranks may touch.
enum class Sharing : std::uint8_t {
  buffers,  // input, output and scratch: all lie in shared memory
  scratch,  // scratch alone: what is sent from elsewhere is first copied there (stage.hpp), nothing is placed
};

// The schedules of all ranks, which must all be lowered together. Each channel of the result is one
// sequential thread of local steps, signals and waits.
//   borrow  a recv into scratch that only local steps read vanishes: they read the sender's memory
//   place   the sender stores into the receiver's buffer, where it has just computed what it sends
//   pull    otherwise the receiver copies from the sender's memory
//   fanout  one signal serves every peer that waits for it
//   elide   a wait whose order another edge implies is never made, nor a signal that nobody waits for
// Two-shot allreduce becomes "load q inputs, add once, store q outputs". No rank ends before the last access
// of others to its buffers; the scratch of a staged schedule (Schedule::is_staged) others may read until the
// rank knows better. The expression trees stay what they were; the result is marked by fuse().
// Errors: what is wrong with the given schedules, as the verifier would say it (matching, order, deadlock);
// invalid_argument if they are lowered already.
Result<std::vector<Schedule>> lower_for_shared_memory(std::span<const Schedule> ranks,
                                                      Sharing sharing = Sharing::buffers);

// Do schedules lowered as "not in place" stay right on ranks where input and output are the same memory?
// Lowering cannot tell ranks apart that call in place from those that do not, so what runs on both is this
// form.
bool is_right_in_place(std::vector<Schedule> lowered);

}  // namespace tutti
