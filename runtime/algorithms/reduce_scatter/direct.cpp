// Direct reduce-scatter: every contribution goes straight to the block's owner, who adds all in rank order.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 4, rank 2: receives block 2 of ranks 0, 1, 3, then output = (((x0 + x1) + x2) + x3), one pass over the
// data.
//
// input: p blocks; output: own block; scratch: p-1 blocks
// rounds 1, p-1 messages at once
// bytes sent per rank (p-1)/p m
// order: rank order -> any op
// For shared memory and full crossbars, all sizes. Segments pay for large vectors: the additions of one hide
// behind the messages of the next.
// Source: textbook (the direct allgather backwards).
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> reduce_scatter_direct(const CollectiveSpec& spec, const GroupView& view,
                                       const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_reduce_scatter(b, window_pattern(b.size(), b.rank(), bruck_windows(b.size(), b.size())),
                      PartialSums::in_scratch);
  return std::move(b).finish();
}

}  // namespace tutti
