// Steps of one node of a tree: partial sums going up, finished values going down.
// Knows no collective's promise; the caller chooses the tree, the blocks and the buffers.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/algorithms/patterns/trees.hpp"
#include "runtime/schedule/builder.hpp"

namespace tutti {

// Node n of the tree is member (n + root) mod p.
struct TreePlace {
  TreeNode node;
  std::uint32_t root = 0;
  std::uint16_t channel = 0;
};

// One value's way up past this node: `sum` <- the values `own` of all nodes below (itself included), sent on
// to the parent; at the root it stays. A leaf sends `own` itself and leaves `sum` alone. Combines in node
// order where the tree is k-nomial or in-order, so with root 0 in rank order.
// The children of one level are received side by side and added at once. The caller emits receive(0),
// add(0), receive(1), ... in an order that keeps receives ahead of additions (emit_tree_reduce, or several
// values in turn), then finish().
class TreeReduction {
 public:
  // Uses slots_per_level() * own.count scratch slots from first_slot for even levels, as many after them for
  // odd levels (if there are any).
  TreeReduction(Builder& builder, const TreePlace& place, const Slice& own, const Slice& sum,
                std::uint32_t first_slot);

  std::size_t levels() const { return level_begin_.size() - 1; }
  std::uint32_t slots_per_level() const;
  void receive(std::size_t level);
  void add(std::size_t level);
  void finish();  // to the parent; the root of a tree of one node copies

 private:
  Slice arrived(std::size_t level, std::size_t child) const;

  Builder& builder_;
  const TreePlace& place_;
  Slice own_, sum_;
  std::uint32_t first_slot_;
  std::vector<std::size_t> level_begin_;  // children of level i: [level_begin_[i], level_begin_[i + 1])
};

// All of it for one value; each level's receives are posted before the level below is added.
void emit_tree_reduce(Builder& b, const TreePlace& place, const Slice& own, const Slice& sum,
                      std::uint32_t first_slot = 0);

// `value` of the root reaches `dst` of every node (at the root by a copy, none where they are the same
// slice). The child with most nodes below it is served first.
void emit_tree_broadcast(Builder& b, const TreePlace& place, const Slice& value, const Slice& dst);

}  // namespace tutti
