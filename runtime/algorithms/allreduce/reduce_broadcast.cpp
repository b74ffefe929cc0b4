// Reduce-broadcast allreduce: sums go up a binomial tree to rank 0, the result comes down the same tree.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5:   up    1 -> 0, 3 -> 2    then 2 -> 0    and 4 -> 0 (any time before rank 0 adds it)
//          down  0 -> 4, 0 -> 2    then 2 -> 3    and 0 -> 1
//
// input, output: count elements; scratch: 2 * count (rank 0; leaves none)
// rounds 2 * height of the tree (at most 2 ceil(log2 p))
// bytes sent per rank up to m ceil(log2 p)
// order: rank order -> any op, same bits on all ranks
// The fewest messages of all (2(p-1)): for tiny vectors, oversubscribed nodes and ranks that arrive at very
// different times. Segments pay where it is forced for large vectors.
// Source: textbook.
#include "runtime/algorithms/patterns/tree_steps.hpp"

namespace tutti {

Result<Schedule> allreduce_reduce_broadcast(const CollectiveSpec& spec, const GroupView& view,
                                            const AlgorithmParams&) {
  Builder b(spec, view, 1);
  const TreePlace place{knomial_tree(b.rank(), b.size())};
  emit_tree_reduce(b, place, b.input(0), b.output(0));
  emit_tree_broadcast(b, place, b.output(0), b.output(0));
  return std::move(b).finish();
}

}  // namespace tutti
