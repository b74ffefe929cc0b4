// Circulant allgather: a window of relative blocks 0..n-1 that doubles along 1, ..., ceil(p/2), p; fewest
// rounds and bytes for any p, one message each way per round.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5, windows 1 2 3 5; rank r holds blocks r, then r..r+1 (from r+1), r..r+2 (block r+2 from r+2), all
// (r+3..r+4 from r+3).
//
// input: own block; output: p blocks; no scratch; every message is one range modulo p
// rounds ceil(log2 p) (1 less where the windows pass through 3: those two need not wait for each other)
// bytes sent per rank (p-1)/p m
// For networks where all ranks are equally near: its last, largest messages go far. Segments pay for large
// vectors.
// Source: Traeff, arXiv 2410.14234.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> allgather_circulant(const CollectiveSpec& spec, const GroupView& view,
                                     const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_allgather(b, window_pattern(b.size(), b.rank(), circulant_windows(b.size())), OwnBlock::in_input);
  return std::move(b).finish();
}

}  // namespace tutti
