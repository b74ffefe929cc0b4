// Circulant reduce-scatter: a window of relative blocks 0..n-1 that shrinks along p, ceil(p/2), ..., 1;
// fewest rounds and bytes for any p.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5, windows 5 3 2 1; rank r sends relative blocks 3..4 to r+3 (which adds them to its 0..1), 2 to r+2
// (its 0), 1 to r+1 (its 0): the circulant allgather backwards.
//
// input: p blocks; output: own block; scratch: about 5/4 p blocks
// rounds ceil(log2 p) (1 less where the windows pass through 3: those two need not wait for each other)
// bytes sent per rank (p-1)/p m
// order: by distance -> needs commutative op
// For networks where all ranks are equally near: its first, largest messages go far. Segments pay for large
// vectors.
// Source: Traeff, arXiv 2410.14234.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> reduce_scatter_circulant(const CollectiveSpec& spec, const GroupView& view,
                                          const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_reduce_scatter(b, window_pattern(b.size(), b.rank(), circulant_windows(b.size())),
                      PartialSums::in_scratch);
  return std::move(b).finish();
}

}  // namespace tutti
