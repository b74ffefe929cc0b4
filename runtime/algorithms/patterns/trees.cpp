// Parents and children of k-nomial and double binary trees.
#include "runtime/algorithms/patterns/trees.hpp"

#include <algorithm>

namespace tutti {

TreeNode knomial_tree(std::uint32_t node, std::uint32_t size, std::uint32_t radix) {
  TreeNode tree;
  tree.node = node;
  std::uint64_t weight = 1;
  for (std::uint32_t level = 0; weight < size; ++level, weight *= radix) {
    const auto digit = static_cast<std::uint32_t>(node / weight % radix);
    if (digit != 0) {
      tree.parent = static_cast<std::uint32_t>(node - digit * weight);
      break;
    }
    for (std::uint64_t c = 1; c < radix && node + c * weight < size; ++c) {
      const auto child = static_cast<std::uint32_t>(node + c * weight);
      tree.children.push_back(
          {child, static_cast<std::uint32_t>(std::min<std::uint64_t>(weight, size - child)), level});
    }
  }
  return tree;
}

std::uint32_t knomial_height(std::uint32_t size, std::uint32_t radix) {
  // The smallest number with h nonzero digits is 11..1.
  std::uint32_t height = 0;
  for (std::uint64_t ones = 1; ones < size; ones = ones * radix + 1) ++height;
  return height;
}

namespace {

// NCCL's btree: the parent of r swaps its lowest set bit for the next higher one, or drops it where that node
// does not exist. The children halve that bit, the upper one until it exists.
TreeNode btree(std::uint32_t node, std::uint32_t size) {
  TreeNode tree;
  tree.node = node;
  std::uint32_t bit = 1;
  while (bit < size && (bit & node) == 0) bit <<= 1;
  if (node == 0) {
    if (size > 1) tree.children.push_back({bit >> 1, 1, 0});
    return tree;
  }
  const std::uint32_t up = (node ^ bit) | (bit << 1);
  tree.parent = up < size ? up : node ^ bit;
  if (bit > 1) tree.children.push_back({node - bit / 2, 1, 0});
  std::uint32_t step = bit / 2;
  while (step > 0 && node + step >= size) step /= 2;
  if (step > 0) tree.children.push_back({node + step, 1, 0});
  return tree;
}

}  // namespace

TreeNode double_binary_tree(std::uint32_t tree, std::uint32_t rank, std::uint32_t size) {
  if (tree == 0 || size == 1) return btree(rank, size);
  if (rank == 0) {
    TreeNode leaf;
    leaf.parent = 1;
    return leaf;
  }
  TreeNode shifted = btree(rank - 1, size - 1);
  shifted.node = rank;
  if (shifted.parent != TreeNode::kNone) ++shifted.parent;
  for (TreeChild& child : shifted.children) ++child.node;
  if (rank == 1) shifted.children.insert(shifted.children.begin(), TreeChild{0, 1, 0});
  return shifted;
}

std::uint32_t double_binary_tree_depth(std::uint32_t tree, std::uint32_t rank, std::uint32_t size) {
  std::uint32_t depth = 0;
  for (std::uint32_t at = rank;; ++depth) {
    at = double_binary_tree(tree, at, size).parent;
    if (at == TreeNode::kNone) return depth;
  }
}

}  // namespace tutti
