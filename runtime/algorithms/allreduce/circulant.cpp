// Circulant allreduce: reduce-scatter and allgather over a circulant graph; fewest rounds for the fewest
// bytes, any p.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5, windows 1 2 3 5; relative block i of rank r is block r + i:
//   reduce-scatter   3..4 to r+3 (its 0..1);  2 to r+2 (its 0);  1 to r+1 (its 0)
//   allgather        0 to r-1 (its 1);        0 to r-2 (its 2);  0..1 to r-3 (its 3..4)
//
// input, output: count elements; scratch: 3/4 count
// rounds 2 ceil(log2 p) (2 less where the windows pass through 3: those two need not wait for each other)
// bytes sent per rank 2(p-1)/p m
// order: by distance -> needs commutative op
// Long-haul traffic is about that of far-first halving: for networks where all ranks are equally near.
// Segments pay for large vectors.
// Source: Traeff, arXiv 2410.14234.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> allreduce_circulant(const CollectiveSpec& spec, const GroupView& view,
                                     const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  const auto pattern = window_pattern(b.size(), b.rank(), circulant_windows(b.size()));
  emit_reduce_scatter(b, pattern, PartialSums::in_output);
  emit_allgather(b, pattern, OwnBlock::in_output);
  return std::move(b).finish();
}

}  // namespace tutti
