// Spreads: the moves that bring blocks from a root to all ranks, for each tree or graph. Rank arithmetic
// only: moves.hpp turns moves into broadcast, reduce, scatter and gather.
//
// A rank receives every block exactly once. In pipelines a receive is listed one block ahead of the sends, so
// that the sender knows the place of block k + 1 while block k is passed on.
#pragma once

#include <cstdint>

#include "runtime/algorithms/patterns/moves.hpp"

namespace tutti {

// The rank for which the moves are made: `rank` of `size`, counted from the root, where the spread starts.
struct SpreadView {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint32_t root = 0;
};
inline SpreadView spread_view(const Builder& b) { return {b.rank(), b.size(), b.root()}; }

// Block q to rank q down a k-nomial tree: each rank receives the range of blocks of its subtree. With radix
// >= size they come directly from the root.
Moves knomial_scatter_moves(const SpreadView& at, std::uint32_t radix);
// Most blocks that a rank other than the root passes through itself.
std::uint64_t knomial_largest_subtree(std::uint32_t size, std::uint32_t radix);

// `blocks` blocks from rank to rank along the chain root, root + 1, ...; size - 1 hops.
Moves chain_moves(const SpreadView& at, std::uint32_t blocks);

// 2 * `pairs` blocks: even ones down one binary tree, odd ones down another. The trees span all ranks but the
// root, which feeds both; no rank has children in both. double_tree_depth: rounds to the farthest rank.
Moves double_tree_moves(const SpreadView& at, std::uint32_t pairs);
std::uint64_t double_tree_depth(std::uint32_t size);

// `blocks` blocks over a circulant graph, in the fewest rounds of one send and one receive per rank:
// blocks - 1 + ceil(log2 size).
Moves circulant_moves(const SpreadView& at, std::uint32_t blocks);
// Rounds of a block to the farthest rank: the most terms of a rank as a greedy sum of skips. One more where
// several blocks leave the root, because some take the way of another rank's first block.
std::uint64_t circulant_depth(std::uint32_t size, std::uint32_t blocks);

}  // namespace tutti
