// Two-shot allreduce: every rank collects one block from all and adds it in rank order, then hands it to all.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 4; what rank 2 does:
//   round 1   sends block d of its input to rank d; receives block 2 of ranks 0, 1, 3
//             block 2 = (((x0 + x1) + x2) + x3), one pass over the data
//   round 2   sends block 2 to all; receives blocks 0, 1, 3
//
// input, output: count elements; scratch: (p-1) * ceil(count/p)
// rounds 2
// bytes sent per rank 2(p-1)/p m
// order: rank order -> any op, same bits on all ranks, whatever p's blocks.
// Segments pay for large vectors: the additions of one hide behind the messages of the next.
// Source: direct reduce-scatter and allgather (the circulant exchange with one window); lowered over shared
//   memory it is the slice-parallel reduction that reads q inputs and writes q outputs.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> allreduce_two_shot(const CollectiveSpec& spec, const GroupView& view,
                                    const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  const auto pattern = window_pattern(b.size(), b.rank(), bruck_windows(b.size(), b.size()));
  emit_reduce_scatter(b, pattern, PartialSums::in_output);
  emit_allgather(b, pattern, OwnBlock::in_output);
  return std::move(b).finish();
}

}  // namespace tutti
