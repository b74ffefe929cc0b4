// K-nomial allreduce: sums go up a k-nomial tree to rank 0, the result comes down the same tree.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5, radix 2:   up 1 -> 0, 3 -> 2, then 2 -> 0, then 4 -> 0   down 0 -> 4, 2, 1, then 2 -> 3
//        radix 8:   up 1, 2, 3, 4 -> 0, one addition of all five   down 0 -> 1, 2, 3, 4
//
// input, output: count elements; scratch: partial sums and one or two levels' arrivals
// rounds 2 floor(log2 p) (radix k: twice the most nonzero digits, base k, of a number below p)
// bytes sent per rank m, by those with children m for each of them as well
// order: rank order -> any op, same bits on all ranks
// A radix of p or more is the least work of all ranks together: p vectors read to add them, p - 1 results
// read, where a one-shot reads p^2. Where ranks are oversubscribed that counts, and a rank that has its
// result needs not wait for anybody before it sends its next vector.
// Segments pay where it is forced for large vectors.
// Source: textbook; MPICH's tree allreduce.
#include "runtime/algorithms/patterns/tree_steps.hpp"

namespace tutti {

Result<Schedule> allreduce_knomial(const CollectiveSpec& spec, const GroupView& view,
                                   const AlgorithmParams& params) {
  Builder b(spec, view, 1);
  const TreePlace place{knomial_tree(b.rank(), b.size(), params.radix)};
  emit_tree_reduce(b, place, b.input(0), b.output(0));
  emit_tree_broadcast(b, place, b.output(0), b.output(0));
  return std::move(b).finish();
}

}  // namespace tutti
