// Broadcast of n blocks over a circulant graph in the fewest rounds possible, any p.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5, root 0, 3 blocks; the block that each rank receives in each round, from the rank `skip` places
// below:
//   round      1   2   3   4   5
//   skip       2   3   1   2   3
//   rank 1             2   1   0
//   rank 2     0           2   1
//   rank 3         1   0       2
//   rank 4             1   0   2
//
// input (root): count elements; output: count elements; scratch: none
// rounds: a block is at most ceil(log2 p) + 1 hops from the root; the pipeline takes blocks - 1 + ceil(log2
//   p) steps of one send and one receive
// bytes sent by the root (1 + (ceil(log2 p) - 1) / blocks) m
// Source: Träff, arXiv 2312.11236 and ACM TOPC 3735139; see patterns/circulant_spread.cpp.
#include "runtime/algorithms/patterns/spread.hpp"

namespace tutti {

Result<Schedule> broadcast_circulant(const CollectiveSpec& spec, const GroupView& view,
                                     const AlgorithmParams& params) {
  Builder b(spec, view, params.segments);
  emit_broadcast(b, circulant_moves(spread_view(b), params.segments), params.segments);
  return std::move(b).finish();
}

}  // namespace tutti
