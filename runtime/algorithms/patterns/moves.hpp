// Moves: the blocks that one rank receives and sends, in order, when something spreads from a root; and the
// four collectives that such a list stands for. Knows no tree and no rank arithmetic (spread.hpp makes the
// lists).
//
// Backwards, with each receive a send and each send a receive and an addition, the moves of a broadcast are a
// reduce with the same rounds and bytes. Scatter and gather are related alike. So an algorithm is written
// once, as a spread, and reversed only here.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/schedule/builder.hpp"

namespace tutti {

struct Move {
  bool is_send = false;
  std::uint32_t peer = 0;
  std::int64_t first = 0;  // blocks first .. first + count - 1, modulo the grid
  std::uint32_t count = 1;
};
using Moves = std::vector<Move>;

// The blocks 0..blocks-1 of the root reach every rank. A rank receives each block exactly once and sends a
// block only after it received it.
void emit_broadcast(Builder& b, const Moves& moves, std::uint32_t blocks);

// The reversal: for each block a rank adds the arrived contributions to its own in one n-ary reduction, own
// first, then in order of arrival, and sends the sum. Moves must name one block each. Only the root's output
// is written. Partial sums lie in scratch, one slot per arrival, so that no receive waits for an addition.
void emit_reduce(Builder& b, const Moves& moves, std::uint32_t blocks);

// Block q of the root reaches rank q; a rank receives one range that starts with its own block and sends
// sub-ranges of it.
void emit_scatter(Builder& b, const Moves& moves);

// The reversal: every rank's block reaches the root. `own` is where the rank has it (its input, or what it
// has just computed); slots 0.. are used for a rank's subtree.
void emit_gather(Builder& b, const Moves& moves, const Slice& own);

}  // namespace tutti
