// Gather up a tree: binomial, or straight to the root (linear).
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5, root 0, binomial; blocks in each message:   1: 1 -> 0   3: 3 -> 2   2 3: 2 -> 0   4: 4 -> 0
// The scatter's moves backwards. Subtrees are ranges of ranks counted from the root, so a message is one
// range of blocks, which may wrap around the end; interior ranks collect theirs in scratch.
//
// input: one block; output (root): p blocks; scratch: a rank's subtree, at most p/2 blocks
// binomial: rounds floor(log2 p); bytes sent per rank at most about m/2
// linear: rounds 1; bytes sent per rank m/p; the root receives p-1 messages
// Blocks keep their identity, so counts may differ (gatherv).
#include "runtime/algorithms/patterns/spread.hpp"

namespace tutti {

Result<Schedule> gather_binomial(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_gather(b, knomial_scatter_moves(spread_view(b), 2), b.input(b.rank()));
  return std::move(b).finish();
}

Result<Schedule> gather_linear(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_gather(b, knomial_scatter_moves(spread_view(b), b.size()), b.input(b.rank()));
  return std::move(b).finish();
}

}  // namespace tutti
