// Broadcast down two binary trees at once, half of the vector down each.
// Knows nothing of transports, dtypes, time or memory.
//
// The trees span all ranks but the root, which feeds both; no rank has children in both, so each sends and
// receives at most m. Block 2k + t is piece k of tree t, `segments` pieces per tree.
//
// input (root): count elements; output: count elements; scratch: none
// rounds about log2 p + 1 hops (pipelined: 2 segments + log2 p steps)
// bytes sent per rank m at most
// Source: Sanders, Speck, Träff, ParCo 2009; trees as in patterns/trees.hpp.
#include "runtime/algorithms/patterns/spread.hpp"

namespace tutti {

Result<Schedule> broadcast_double_binary_tree(const CollectiveSpec& spec, const GroupView& view,
                                              const AlgorithmParams& params) {
  Builder b(spec, view, 2 * params.segments);
  emit_broadcast(b, double_tree_moves(spread_view(b), params.segments), 2 * params.segments);
  return std::move(b).finish();
}

}  // namespace tutti
