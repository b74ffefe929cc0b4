// Broadcast down a k-nomial tree; the binomial tree is radix 2.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5, root 0, radix 2:   0 -> 4, 0 -> 2, 0 -> 1, 2 -> 3        radix 4:   0 -> 4, 0 -> 1, 2, 3
//
// input (root): count elements; output: count elements; scratch: none
// rounds floor(log2 p) (radix k: the most nonzero digits, base k, of a number below p)
// bytes sent by the root m per child, ceil(log2 p) children for radix 2.
// A high radix trades bytes at the root for depth.
// Source: textbook; ranks counted from the root, largest subtree first.
#include "runtime/algorithms/patterns/tree_steps.hpp"

namespace tutti {

Result<Schedule> broadcast_knomial(const CollectiveSpec& spec, const GroupView& view,
                                   const AlgorithmParams& params) {
  Builder b(spec, view, 1);
  const std::uint32_t node = (b.rank() + b.size() - b.root()) % b.size();
  const bool is_root = node == 0;
  emit_tree_broadcast(b, {knomial_tree(node, b.size(), params.radix), b.root()},
                      is_root ? b.input(0) : b.output(0), b.output(0));
  return std::move(b).finish();
}

Result<Schedule> broadcast_binomial(const CollectiveSpec& spec, const GroupView& view,
                                    const AlgorithmParams&) {
  return broadcast_knomial(spec, view, {.radix = 2});
}

}  // namespace tutti
