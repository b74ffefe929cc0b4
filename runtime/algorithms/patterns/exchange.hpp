// Exchange patterns: the sends and receives of one rank, round by round, after which every rank has every
// block; and the two collectives that such a pattern stands for. Emission only; allgather_patterns.hpp holds
// the patterns. Knows no rank arithmetic, no transport and no counts.
//
// Forwards, a pattern is an allgather. Backwards, with every receive a send and every send a receive and an
// addition, it is a reduce-scatter with the same rounds and bytes. Both in sequence over one grid are an
// allreduce. So ring, circulant, PAT, Bine, butterfly and direct are each written once, as an allgather.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/schedule/builder.hpp"

namespace tutti {

// Blocks first, first + stride, ..., modulo the grid.
struct BlockRun {
  std::int64_t first = 0;
  std::uint32_t count = 1;
  std::uint32_t stride = 1;
};
// The blocks as few runs, keeping their order. Sender and receiver of a list get equal runs.
std::vector<BlockRun> to_runs(std::span<const std::int64_t> blocks);

struct BlockMessage {
  std::uint32_t peer = 0;
  BlockRun blocks;
};

// One parallel exchange; a round's sends carry what the rank held before the round.
struct ExchangeRound {
  std::vector<BlockMessage> sends;
  std::vector<BlockMessage> recvs;
};

// At the start the rank holds block `own` alone; each other block is received once and not sent before that.
struct ExchangePattern {
  std::uint32_t blocks = 1;
  std::int64_t own = 0;
  std::vector<ExchangeRound> rounds;
};

enum class OwnBlock : std::uint8_t {
  in_input,   // an allgather: the first round sends from input, the copy to output hides behind it
  in_output,  // the second half of an allreduce
};
// The rank's own block reaches everybody, everybody's reaches output. No scratch.
void emit_allgather(Builder& b, const ExchangePattern& pattern, OwnBlock where);

enum class PartialSums : std::uint8_t {
  in_scratch,      // a reduce-scatter: of output only the own block is written
  all_in_scratch,  // the same for a rank without an output: its own block's sum stays in slot 0
  in_output,       // the first half of an allreduce
  from_output,     // the same, and what the rank adds of its own is in output already, not in input
};
// output's own block (or slot 0) <- the sum of everybody's input of that block; returns where it is.
//
// A block is sent from input until something was added to it, so there is no pass over the vector ahead of the
// first round. (In a message that mixes both kinds, the untouched blocks are copied.) The contributions that
// arrive for a block in one round are added at once, in ascending order of peer, with the own partial sum in the
// place of the own rank. That is rank order where the pattern merges neighbouring ranges of ranks. A block that
// arrives after the rank has sent its own partial sum of it is finished, and stored.
//
// Order of steps: the sums a message needs, the message, the round's receives, then the sums nobody waits
// for. Scratch: two rounds' arrivals, and (in_scratch) the partial sums of blocks still to be sent.
Slice emit_reduce_scatter(Builder& b, const ExchangePattern& pattern, PartialSums where);

}  // namespace tutti
