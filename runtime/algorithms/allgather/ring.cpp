// Ring allgather: everybody passes on to the next rank what it got from the one before.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 4, blocks that have arrived:
//            rank 0    rank 1    rank 2    rank 3
//   start    0         1         2         3
//   round 0  0 3       1 0       2 1       3 2
//   round 1  0 3 2     1 0 3     2 1 0     3 2 1
//   round 2  all       all       all       all
//
// input: own block; output: p blocks; no scratch
// rounds p-1
// bytes sent per rank (p-1)/p m
// Neighbour links only: for large vectors, or networks on which only those are cheap. Segments shorten the
// pipeline of a hop (receive and pass on overlap).
// Source: textbook.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> allgather_ring(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_allgather(b, ring_pattern(b.size(), b.rank()), OwnBlock::in_input);
  return std::move(b).finish();
}

}  // namespace tutti
