// Bine reduce-scatter: a butterfly whose partners lie 2/3 as far as those of recursive halving, for even p.
// Knows nothing of transports, dtypes, time or memory.
//
// The Bine allgather backwards: p = 8, partners of rank r, even ranks plus, odd ranks minus: +1, -1, +3; the
// first message has p/2 blocks, the last one.
//
// input: p blocks; output: own block; scratch: about 5/4 p blocks
// rounds ceil(log2 p)
// bytes sent per rank (p-1)/p m
// order: along the butterfly -> needs commutative op
// A round's blocks are no single slice and go as several messages to one partner. For tapered networks and
// tori. Segments pay for large vectors.
// Source: Bine, arXiv 2508.17311; Swing, arXiv 2401.09356 (the same partners).
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> reduce_scatter_bine(const CollectiveSpec& spec, const GroupView& view,
                                     const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_reduce_scatter(b, bine_pattern(b.size(), b.rank()), PartialSums::in_scratch);
  return std::move(b).finish();
}

}  // namespace tutti
