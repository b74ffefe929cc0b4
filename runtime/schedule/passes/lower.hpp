// Lowering for ranks that share memory: sends and receives become loads and stores on each other's memory,
// ordered by signal and wait. Knows no address and no cache line.
//
// One message, in the forms it can take: rank 0 computes x and sends it, rank 1 computes y from it.
//
//            rank 0                              rank 1
//   before   x = ...; send x to 1                recv s from 0; y = s + b
//   borrow   x = ...; signal 1                   wait 1 of 0; y = x@0 + b       reads where x lies
//   place    x = ...; s@1 = x; signal 1          wait 1 of 0; y = s + b         the sender stores
//   pull     x = ...; signal 1                   wait 1 of 0; s = x@0; y = ...  the receiver copies
//
//   fanout   one signal serves all ranks that wait for it:
//            x = ...; signal 1                   wait 1 of 0 (rank 1), wait 1 of 0 (rank 2), ...
//   merge    many signals with no wait in between become the last one:
//            x = ...; y = ...; signal 1          wait 1 of 0 (rank 1, reads x), wait 1 of 0 (rank 2, reads y), ...
//   elide    a wait that another order implies is left out, and a signal that no rank waits for:
//            rank 2 has waited for rank 1, which had waited for rank 0 -> rank 2 need not wait for rank 0
//
// Borrow serves a recv into scratch that only local steps read, as long as the sender does not write there.
// Place serves a recv into the output of a value that the sender computed in the round before. Pull serves all
// other messages.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

// Lowering looks at the schedules of all ranks at once, and each wait compares what is known of every rank. So
// its time grows with steps times ranks, and schedules beyond a limit are not lowered: the first call would take
// a second and more. Of 128 ranks every row fits. Of 256, rows fit in which a rank has up to 256 steps.
inline constexpr std::uint64_t kMostLoweringWork = std::uint64_t{1} << 24U;

// The steps that schedules of so many ranks may have in all.
constexpr std::uint64_t most_lowered_steps(std::uint32_t ranks) {
  return kMostLoweringWork / (ranks == 0 ? 1 : ranks);
}

// The memory of other ranks that a lowered schedule may use; each value is one form of a schedule.
enum class Sharing : std::uint8_t {
  buffers,  // direct form: input, output and scratch, which all lie in shared memory
  scratch,  // staged form: scratch alone. A rank first copies there what others read (stage.hpp); no place
};
std::string_view to_string(Sharing sharing);  // "direct", "staged"

// Lowers the schedules of all ranks, together. Each channel of the result is one sequential thread of local
// steps, signals and waits. Two-shot allreduce becomes "load q inputs, add once, store q outputs".
// No rank ends before the last access of others to its buffers. The scratch of a staged schedule
// (Schedule::is_staged) may be read for longer. The expression trees stay the same; fuse() marks the result.
// Errors: mistakes of the given schedules, as the verifier names them (matching, order, deadlock);
// invalid_argument if they are lowered already.
Result<std::vector<Schedule>> lower_for_shared_memory(std::span<const Schedule> ranks,
                                                      Sharing sharing = Sharing::buffers);

// Whether schedules lowered as "not in place" are also right on ranks whose input and output are the same
// memory. Lowering cannot know which ranks will call in place, so one form must serve both.
bool is_right_in_place(std::vector<Schedule> lowered);

}  // namespace tutti
