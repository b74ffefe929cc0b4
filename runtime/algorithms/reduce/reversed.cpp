// Pipelined reduces: the pipelined broadcasts, played backwards.
// Knows nothing of transports, dtypes, time or memory.
//
// Every broadcast in which each rank receives each block once becomes a reduce when its moves are played from
// last to first, receives as sends and sends as receives with an addition; same rounds and bytes, with sent
// and received exchanged. patterns/moves.hpp does that; tables and costs stand in broadcast/.
//
// input: count elements; output (root): count elements; scratch: one block per arrival
// order: along the tree or graph, around the end -> needs a commutative op
#include "runtime/algorithms/patterns/spread.hpp"

namespace tutti {

Result<Schedule> reduce_chain(const CollectiveSpec& spec, const GroupView& view,
                              const AlgorithmParams& params) {
  Builder b(spec, view, params.segments);
  emit_reduce(b, chain_moves(spread_view(b), params.segments), params.segments);
  return std::move(b).finish();
}

Result<Schedule> reduce_circulant(const CollectiveSpec& spec, const GroupView& view,
                                  const AlgorithmParams& params) {
  Builder b(spec, view, params.segments);
  emit_reduce(b, circulant_moves(spread_view(b), params.segments), params.segments);
  return std::move(b).finish();
}

Result<Schedule> reduce_double_binary_tree(const CollectiveSpec& spec, const GroupView& view,
                                           const AlgorithmParams& params) {
  Builder b(spec, view, 2 * params.segments);
  emit_reduce(b, double_tree_moves(spread_view(b), params.segments), 2 * params.segments);
  return std::move(b).finish();
}

}  // namespace tutti
