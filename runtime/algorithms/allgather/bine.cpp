// Bine allgather: a butterfly whose partners lie 2/3 as far as those of recursive doubling, for even p.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 8, partners of rank r, even ranks plus, odd ranks minus: +3, -1, +1. Block 0 spreads
//   0 -> 3;   0 -> 7, 3 -> 4;   0 -> 1, 3 -> 2, 7 -> 6, 4 -> 5
// Where p is no power of two a rank may be offered a block twice and takes the first.
//
// input: own block; output: p blocks; no scratch; a round's blocks are no single slice and go as several
//   messages to one partner
// rounds ceil(log2 p)
// bytes sent per rank (p-1)/p m
// For tapered networks and tori. Segments pay for large vectors.
// Source: Bine, arXiv 2508.17311; Swing, arXiv 2401.09356 (the same partners).
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> allgather_bine(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_allgather(b, bine_pattern(b.size(), b.rank()), OwnBlock::in_input);
  return std::move(b).finish();
}

}  // namespace tutti
