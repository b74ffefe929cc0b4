// Direct allgather: everybody sends its block to everybody; one round.
// Knows nothing of transports, dtypes, time or memory.
//
// Rank r sends to r-1, r-2, ... and receives from r+1, r+2, ..., so that no rank is everyone's first choice.
// It is the Bruck exchange of radix p.
//
// input: own block; output: p blocks; no scratch
// rounds 1, p-1 messages at once
// bytes sent per rank (p-1)/p m
// For shared memory and full crossbars, all sizes. Segments pay for large vectors over shared memory (pieces
// stay in cache between writer and readers).
// Source: textbook.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> allgather_direct(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_allgather(b, window_pattern(b.size(), b.rank(), bruck_windows(b.size(), b.size())),
                 OwnBlock::in_input);
  return std::move(b).finish();
}

}  // namespace tutti
