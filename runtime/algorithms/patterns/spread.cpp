// Spreads down trees and chains. Rank arithmetic only; circulant_spread.cpp holds the one over a graph.
#include "runtime/algorithms/patterns/spread.hpp"

#include <algorithm>
#include <array>

#include "runtime/algorithms/patterns/trees.hpp"

namespace tutti {

Moves knomial_scatter_moves(const SpreadView& at, std::uint32_t radix) {
  const std::uint32_t p = at.size;
  const auto member = [&](std::uint32_t node) { return (node + at.root) % p; };
  const TreeNode node = knomial_tree((at.rank + p - at.root) % p, p, radix);
  std::uint32_t below = 1;
  for (const TreeChild& child : node.children) below += child.count;
  Moves moves;
  if (node.parent != TreeNode::kNone) moves.push_back({false, member(node.parent), at.rank, below});
  for (auto child = node.children.rbegin(); child != node.children.rend(); ++child)  // largest first
    moves.push_back({true, member(child->node), member(child->node), child->count});
  return moves;
}

std::uint64_t knomial_largest_subtree(std::uint32_t size, std::uint32_t radix) {
  std::uint64_t largest = 0;
  for (const TreeChild& child : knomial_tree(0, size, radix).children)
    largest = std::max<std::uint64_t>(largest, child.count);
  return largest;
}

Moves chain_moves(const SpreadView& at, std::uint32_t blocks) {
  const std::uint32_t p = at.size, v = (at.rank + p - at.root) % p;
  Moves moves;
  for (std::uint32_t k = 0; k <= blocks; ++k) {
    if (k < blocks && v > 0) moves.push_back({false, (at.rank + p - 1) % p, k, 1});
    if (k > 0 && v + 1 < p) moves.push_back({true, (at.rank + 1) % p, k - 1, 1});
  }
  return moves;
}

namespace {

// The two trees span nodes 0..size-2, which are the ranks after the root; `root` stands above both.
constexpr std::uint32_t kTrees = 2;

}  // namespace

Moves double_tree_moves(const SpreadView& at, std::uint32_t pairs) {
  const std::uint32_t p = at.size, v = (at.rank + p - at.root) % p;
  const auto member = [&](std::uint32_t node) { return (at.root + 1 + node) % p; };
  Moves moves;
  if (p == 1) return moves;
  std::array<TreeNode, kTrees> trees;
  for (std::uint32_t t = 0; t < kTrees; ++t) {
    if (v > 0) {
      trees[t] = double_binary_tree(t, v - 1, p - 1);
    } else {  // the root's only child is the root of the tree
      std::uint32_t top = 0;
      while (double_binary_tree(t, top, p - 1).parent != TreeNode::kNone) ++top;
      trees[t].children.push_back({top, p - 1, 0});
    }
  }
  for (std::uint32_t k = 0; k <= pairs; ++k) {
    for (std::uint32_t t = 0; t < kTrees; ++t) {
      const std::uint32_t parent = trees[t].parent == TreeNode::kNone ? at.root : member(trees[t].parent);
      if (k < pairs && v > 0) moves.push_back({false, parent, kTrees * k + t, 1});
    }
    for (std::uint32_t t = 0; k > 0 && t < kTrees; ++t) {
      for (const TreeChild& child : trees[t].children)
        moves.push_back({true, member(child.node), kTrees * (k - 1) + t, 1});
    }
  }
  return moves;
}

std::uint64_t double_tree_depth(std::uint32_t size) {
  std::uint64_t depth = 0;
  for (std::uint32_t t = 0; t < kTrees; ++t) {
    for (std::uint32_t node = 0; node + 1 < size; ++node)  // one more hop: from the root to the tree's root
      depth = std::max<std::uint64_t>(depth, 1 + double_binary_tree_depth(t, node, size - 1));
  }
  return depth;
}

}  // namespace tutti
