// Rank arithmetic of trees: the parent and the children of a rank, and the nodes below each child. Knows no
// collective and no builder. Nodes are 0..size-1; node 0 is the root of a k-nomial tree. An algorithm with
// another root uses node = (rank - root) mod p.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti {

struct TreeChild {
  std::uint32_t node = 0;
  std::uint32_t count = 1;  // k-nomial: nodes node .. node + count - 1 hang below it (itself included)
  std::uint32_t level = 0;  // k-nomial: this is child c * radix^level; children of one level finish together
};

// One node's view of a tree. Children are in ascending order of node. In a k-nomial tree that is also
// smallest subtree first: a reduction takes them in this order, a broadcast serves them in the reverse one.
struct TreeNode {
  static constexpr std::uint32_t kNone = ~0U;
  std::uint32_t node = 0;
  std::uint32_t parent = kNone;
  std::vector<TreeChild> children;
};

// Children of node v: v + c * radix^j for c = 1..radix-1, while radix^j is at most the weight of v's lowest
// nonzero digit (any for v = 0). Subtrees are ranges of nodes, so that "own value, then children in ascending
// order" combines in node order. Radix 2 is the binomial tree.
TreeNode knomial_tree(std::uint32_t node, std::uint32_t size, std::uint32_t radix = 2);
// Hops from the root to the farthest node: the most nonzero digits, base radix, of a number below size.
std::uint32_t knomial_height(std::uint32_t size, std::uint32_t radix = 2);

// Tree 0 or 1 of the double binary tree: two trees over the same ranks, each for half of the data. No rank
// has children in both, so all ranks send and receive equally much. Numbered in order: "lower child, own
// value, upper child" combines in rank order.
// Tree 0 is NCCL's btree, rooted at rank 0 (its interior nodes are even). Tree 1 is the same tree over ranks
// 1..size-1, rooted at rank 1, with rank 0 as one more leaf below it. NCCL mirrors or shifts instead, which
// for odd sizes would put rank 0 last. `count` and `level` of the children are not set.
TreeNode double_binary_tree(std::uint32_t tree, std::uint32_t rank, std::uint32_t size);
// Hops from the root to a rank.
std::uint32_t double_binary_tree_depth(std::uint32_t tree, std::uint32_t rank, std::uint32_t size);

}  // namespace tutti
