// Spreads: the moves with which blocks get from a root to all ranks, for each tree or graph. Rank arithmetic
// only: what the moves mean (broadcast, or backwards reduce; scatter, gather) is moves.hpp's business.
//
// A rank receives every block exactly once. In pipelines a receive is listed one block ahead of the sends, so
// that while block k is handed on, the place of block k + 1 is already known to the sender.
#pragma once

#include <cstdint>

#include "runtime/algorithms/patterns/moves.hpp"

namespace tutti {

// Who asks: rank `rank` of `size`, and where the spread starts. Ranks are counted from the root.
struct SpreadView {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  std::uint32_t root = 0;
};
inline SpreadView spread_view(const Builder& b) { return {b.rank(), b.size(), b.root()}; }

// Block q to rank q down a k-nomial tree: each rank receives the range of blocks of its subtree. radix >=
// size: directly from the root.
Moves knomial_scatter_moves(const SpreadView& at, std::uint32_t radix);
// Most blocks that a rank other than the root passes through itself.
std::uint64_t knomial_largest_subtree(std::uint32_t size, std::uint32_t radix);

// `blocks` blocks from rank to rank along the chain root, root + 1, ...; size - 1 hops.
Moves chain_moves(const SpreadView& at, std::uint32_t blocks);

// 2 * `pairs` blocks: even ones down one binary tree, odd ones down another; the trees span all ranks but the
// root, which feeds both, and no rank has children in both. double_tree_depth: hops to the farthest rank.
Moves double_tree_moves(const SpreadView& at, std::uint32_t pairs);
std::uint64_t double_tree_depth(std::uint32_t size);

// `blocks` blocks over a circulant graph, in the fewest rounds of one send and one receive per rank:
// blocks - 1 + ceil(log2 size).
Moves circulant_moves(const SpreadView& at, std::uint32_t blocks);
// Hops of a block to the farthest rank: the most terms of a rank as a greedy sum of skips, and one more where
// several blocks leave the root (some take the way of another rank's first block).
std::uint64_t circulant_depth(std::uint32_t size, std::uint32_t blocks);

}  // namespace tutti
