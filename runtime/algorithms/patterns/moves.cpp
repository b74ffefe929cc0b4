// The four readings of a list of moves. Emission only; no rank arithmetic.
#include "runtime/algorithms/patterns/moves.hpp"

#include <algorithm>

#include "runtime/base/status.hpp"

namespace tutti {

void emit_broadcast(Builder& b, const Moves& moves, std::uint32_t blocks) {
  const bool is_root = b.rank() == b.root();
  for (const Move& move : moves) {
    if (!move.is_send)
      b.recv(move.peer, b.output(move.first, move.count));
    else  // the root sends from its input, so that no message waits for the copy below
      b.send(move.peer, is_root ? b.input(move.first, move.count) : b.output(move.first, move.count));
  }
  if (is_root) b.copy(b.output(0, blocks), b.input(0, blocks));
}

void emit_reduce(Builder& b, const Moves& moves, std::uint32_t blocks) {
  // Terms of each block: the own contribution first, then the arrived ones.
  std::vector<std::vector<Slice>> terms(blocks);
  std::vector<std::uint32_t> missing(blocks, 0);
  for (std::uint32_t block = 0; block < blocks; ++block) terms[block].push_back(b.input(block));
  for (const Move& move : moves) {
    TUTTI_ASSERT(move.count == 1, "a reversed spread names one block per move");
    if (move.is_send) ++missing[static_cast<std::size_t>(move.first)];
  }

  const bool is_root = b.rank() == b.root();
  std::uint32_t slots = 0;
  std::vector<std::int64_t> complete;  // at the root: blocks whose last term has been asked for
  const auto finish_blocks = [&] {
    for (const std::int64_t block : complete)
      b.reduce(b.output(block), terms[static_cast<std::size_t>(block)]);
    complete.clear();
  };
  for (auto move = moves.rbegin(); move != moves.rend(); ++move) {
    const auto block = static_cast<std::size_t>(move->first);
    std::vector<Slice>& sum = terms[block];
    if (move->is_send) {
      sum.push_back(b.scratch(slots++, move->first));
      b.recv(move->peer, sum.back());
      finish_blocks();  // one move late, so that the next receive is posted before this addition waits
      if (is_root && --missing[block] == 0) complete.push_back(move->first);
    } else if (sum.size() == 1) {
      b.send(move->peer, sum[0]);
    } else {
      b.reduce(sum[1], sum);
      b.send(move->peer, sum[1]);
    }
  }
  finish_blocks();
  if (is_root && moves.empty()) b.copy(b.output(0, blocks), b.input(0, blocks));
}

namespace {

// A range of blocks passing through a rank that is neither its source nor its end. Slot 0 is for the own
// block, with which such a range starts or above which it lies.
Slice passing(const Builder& b, const Move& move) {
  const std::int64_t p = b.size(), offset = (((move.first - b.rank()) % p) + p) % p;
  return b.scratch(static_cast<std::uint32_t>(offset), move.first, move.count);
}

bool is_interior(const Builder& b, const Moves& moves) {
  return b.rank() != b.root() &&
         std::any_of(moves.begin(), moves.end(), [](const Move& move) { return move.is_send; });
}

}  // namespace

void emit_scatter(Builder& b, const Moves& moves) {
  const bool is_root = b.rank() == b.root(), passes = is_interior(b, moves);
  const Slice own = b.output(b.rank());
  for (const Move& move : moves) {
    if (move.is_send)
      b.send(move.peer, is_root ? b.input(move.first, move.count) : passing(b, move));
    else
      b.recv(move.peer, passes ? passing(b, move) : own);
  }
  if (passes) b.copy(own, b.scratch(0, b.rank()));
  if (is_root) b.copy(own, b.input(b.rank()));
}

void emit_gather(Builder& b, const Moves& moves, const Slice& own) {
  const bool is_root = b.rank() == b.root(), passes = is_interior(b, moves);
  if (passes) b.copy(b.scratch(0, b.rank()), own);
  for (auto move = moves.rbegin(); move != moves.rend(); ++move) {
    if (move->is_send)
      b.recv(move->peer, is_root ? b.output(move->first, move->count) : passing(b, *move));
    else
      b.send(move->peer, passes ? passing(b, *move) : own);
  }
  if (is_root) b.copy(b.output(b.rank()), own);
}

}  // namespace tutti
