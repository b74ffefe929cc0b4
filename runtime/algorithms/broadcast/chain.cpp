// Broadcast along a chain, block after block.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 4, root 0, 3 blocks; which block crosses each edge in each step of the pipeline:
//            0 -> 1   1 -> 2   2 -> 3
//   step 0   0
//   step 1   1        0
//   step 2   2        1        0
//   step 3            2        1
//   step 4                     2
//
// input (root): count elements; output: count elements; scratch: none
// rounds p-1 along the chain (blocks + p - 2 steps of the pipeline)
// bytes sent per rank m
// Source: textbook; best for huge vectors and few ranks.
#include "runtime/algorithms/patterns/spread.hpp"

namespace tutti {

Result<Schedule> broadcast_chain(const CollectiveSpec& spec, const GroupView& view,
                                 const AlgorithmParams& params) {
  Builder b(spec, view, params.segments);
  emit_broadcast(b, chain_moves(spread_view(b), params.segments), params.segments);
  return std::move(b).finish();
}

}  // namespace tutti
