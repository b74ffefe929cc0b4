// Reduce up a k-nomial tree; the binomial tree is radix 2.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5, root 0, radix 2:   1 -> 0, 3 -> 2, 2 -> 0, 4 -> 0: the broadcast's tree, backwards
//
// input: count elements; output (root): count elements; scratch: partial sums and one or two levels' arrivals
// rounds floor(log2 p) (radix k: the most nonzero digits, base k, of a number below p)
// bytes sent per rank m
// order: from the root's rank upwards, around the end -> needs a commutative op unless the root is rank 0
#include "runtime/algorithms/patterns/tree_steps.hpp"

namespace tutti {

Result<Schedule> reduce_knomial(const CollectiveSpec& spec, const GroupView& view,
                                const AlgorithmParams& params) {
  Builder b(spec, view, 1);
  const std::uint32_t node = (b.rank() + b.size() - b.root()) % b.size();
  const bool is_root = node == 0;
  emit_tree_reduce(b, {knomial_tree(node, b.size(), params.radix), b.root()}, b.input(0),
                   is_root ? b.output(0) : b.scratch(0, 0), is_root ? 0 : 1);
  return std::move(b).finish();
}

Result<Schedule> reduce_binomial(const CollectiveSpec& spec, const GroupView& view, const AlgorithmParams&) {
  return reduce_knomial(spec, view, {.radix = 2});
}

}  // namespace tutti
