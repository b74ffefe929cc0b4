// Scatter down a tree: binomial, or straight from the root (linear).
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5, root 0, binomial; blocks in each message:   4: 0 -> 4   2 3: 0 -> 2   1: 0 -> 1   3: 2 -> 3
// Subtrees are ranges of ranks counted from the root, so a message is one range of blocks, which may wrap
// around the end; interior ranks receive theirs in scratch.
//
// input (root): p blocks; output: one block; scratch: a rank's subtree, at most p/2 blocks
// binomial: rounds floor(log2 p); bytes sent by the root (p-1)/p m, in ceil(log2 p) messages
// linear: rounds 1; bytes sent by the root (p-1)/p m, in p-1 messages
// Blocks keep their identity, so counts may differ (scatterv).
#include "runtime/algorithms/patterns/spread.hpp"

namespace tutti {

Result<Schedule> scatter_binomial(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_scatter(b, knomial_scatter_moves(spread_view(b), 2));
  return std::move(b).finish();
}

Result<Schedule> scatter_linear(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_scatter(b, knomial_scatter_moves(spread_view(b), b.size()));
  return std::move(b).finish();
}

}  // namespace tutti
