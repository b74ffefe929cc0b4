// Ring reduce-scatter: partial sums travel once around the ring and end at the block's owner.
// Knows nothing of transports, dtypes, time or memory.
//
// The ring allgather backwards. p = 4; block that rank r sends on in round s is r + 1 + s, to rank r-1:
//            rank 0        rank 1        rank 2        rank 3       (block: contributions it has then)
//   s = 0    2: 0,1        3: 1,2        0: 2,3        1: 3,0
//   s = 1    3: 0,1,2      0: 1,2,3      1: 2,3,0      2: 3,0,1
//   s = 2    0: all        1: all        2: all        3: all
//
// input: p blocks; output: own block; scratch: 3 blocks
// rounds p-1
// bytes sent per rank (p-1)/p m
// order: rotated per block -> needs commutative op
// Segments pay: the addition of one hides behind the message of the next.
// Source: Patarasuk, Yuan, JPDC 2009.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> reduce_scatter_ring(const CollectiveSpec& spec, const GroupView& view,
                                     const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_reduce_scatter(b, ring_pattern(b.size(), b.rank()), PartialSums::in_scratch);
  return std::move(b).finish();
}

}  // namespace tutti
