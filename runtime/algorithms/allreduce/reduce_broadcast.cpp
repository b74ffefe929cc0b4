// Reduce-broadcast allreduce: sums go up binomial trees of both halves of the ranks, whose roots swap theirs;
// the result comes down the same trees. Knows nothing of transports, dtypes, time or memory.
//
// p = 6, halves 0-3 and 4-5:   up    1 -> 0, 3 -> 2, 5 -> 4    then 2 -> 0
//                              swap  0 <-> 4
//                              down  0 -> 2, 0 -> 1, 4 -> 5    then 2 -> 3
//
// The swap is the upper edge of one binomial tree over all ranks, used in both directions at once: as many
// messages as reduce and broadcast one after the other, a round less.
//
// input, output: count elements; scratch: at most 4 * count (the roots; leaves none)
// rounds the longest way up, across and down: at most 2 ceil(log2 p) - 1
// bytes sent per rank up to m ceil(log2 p)
// order: rank order -> any op, same bits on all ranks
// The fewest messages of all (2(p-1)): for tiny vectors, oversubscribed nodes and ranks that arrive at very
// different times. Segments pay where it is forced for large vectors.
// Source: textbook; the swap is ours.
#include <algorithm>
#include <array>
#include <bit>

#include "runtime/algorithms/patterns/tree_steps.hpp"

namespace tutti {

Result<Schedule> allreduce_reduce_broadcast(const CollectiveSpec& spec, const GroupView& view,
                                            const AlgorithmParams&) {
  Builder b(spec, view, 1);
  const std::uint32_t p = b.size();
  const std::uint32_t lower_size = std::max(std::bit_ceil(p) / 2, 1U);
  const bool is_lower = b.rank() < lower_size;
  const std::uint32_t root = is_lower ? 0 : lower_size, other_root = lower_size - root;
  const TreePlace place{knomial_tree(b.rank() - root, is_lower ? lower_size : p - lower_size), root};
  const Slice own = b.input(0), result = b.output(0);
  if (b.rank() != root || p == 1) {
    emit_tree_reduce(b, place, own, result);
  } else {
    // In scratch, so that the result needs not wait until the other root has this half.
    const bool is_alone = place.node.children.empty();
    const Slice half = is_alone ? own : b.scratch(0, 0);
    if (!is_alone) emit_tree_reduce(b, place, own, half, 1);
    const Slice other_half = b.scratch(b.scratch_slots(), 0);
    b.send(other_root, half);
    b.recv(other_root, other_half);
    b.reduce(result, is_lower ? std::array{half, other_half} : std::array{other_half, half});
  }
  emit_tree_broadcast(b, place, result, result);
  return std::move(b).finish();
}

}  // namespace tutti
