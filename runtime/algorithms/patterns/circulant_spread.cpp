// Round-optimal broadcast of n blocks over a circulant graph (Träff). Rank arithmetic only.
//
// In round i every rank v receives from v - s_k and sends to v + s_k, k = i mod q. The skips are s_0 = 1,
// ..., s_q = p with s_k = ceil(s_{k+1} / 2). A table R_v[0..q-1] names the block, relative to the phase of q
// rounds; v sends the block that its partner's table names. Each rank computes a table in O(log p) alone.
// Source: Träff, arXiv 2312.11236 (algorithm ALLBLOCKS, recursive form); ACM TOPC 3735139. The blocks of a
// rank must come over strictly decreasing sums of skips, which an iterative form easily loses.
#include <algorithm>

#include "runtime/algorithms/patterns/allgather_patterns.hpp"
#include "runtime/algorithms/patterns/spread.hpp"

namespace tutti {
namespace {

// Finds the receive table of one rank: a depth-first walk over sums of skips, greedy from the largest.
class ReceiveTable {
 public:
  ReceiveTable(std::uint32_t v, std::uint32_t p, const std::vector<std::uint32_t>& skips)
      : rounds_(static_cast<int>(skips.size()) - 1), target_(std::int64_t{p} + v) {
    for (const std::uint32_t skip : skips) skip_.push_back(skip);
    skip_.push_back(std::int64_t{1} << 40);  // s_{q+1}: beyond every rank
    for (int e = 0; e <= rounds_ + 1; ++e) {
      next_.push_back(e - 1);  // the list q, q-1, ..., 0 of skips still to be used, -1 ends it
      previous_.push_back(e + 1);
    }
    table_.assign(static_cast<std::size_t>(rounds_), 0);
    const int base = base_block(v);
    unlink(base);
    walk(0, 2 * std::int64_t{p}, rounds_, 0);
    for (int& entry : table_) entry = entry == rounds_ ? base : entry - rounds_;
  }
  const std::vector<int>& table() const { return table_; }

 private:
  std::int64_t skip(int k) const { return skip_[static_cast<std::size_t>(k)]; }
  int& next(int e) { return next_[static_cast<std::size_t>(e)]; }

  // The block that reaches v first: its last skip when v is written as a greedy sum of skips.
  int base_block(std::int64_t v) const {
    for (int k = rounds_ - 1; k >= 0 && v > 0; --k) {
      if (v < skip(k)) continue;
      v -= skip(k);
      if (v == 0) return k;
    }
    return rounds_;  // the root's own
  }
  void unlink(int e) {
    const int before = previous_[static_cast<std::size_t>(e)], after = next(e);
    if (before <= rounds_) next(before) = after;
    if (after >= 0) previous_[static_cast<std::size_t>(after)] = before;
  }
  // Extends the sum `reached` by skips from `e` downwards, below `bound`; fills the table from entry k on and
  // returns the first entry still open.
  int walk(std::int64_t reached, std::int64_t bound, int e, int k) {
    for (; e >= 0; e = next(e)) {
      const std::int64_t sum = reached + skip(e);
      if (sum > target_ - skip(k) || sum >= bound) continue;
      if (sum <= target_ - skip(k + 1)) k = walk(sum, bound, e, k);
      if (reached > target_ - skip(k + 1)) return k;
      bound = sum;
      table_[static_cast<std::size_t>(k++)] = e;
      unlink(e);
      if (k == rounds_) return k;
    }
    return k;
  }

  int rounds_;
  std::int64_t target_;
  std::vector<std::int64_t> skip_;
  std::vector<int> next_, previous_, table_;
};

// The block that v receives in each of the n - 1 + q rounds, or -1. A table entry beyond the last block means
// the last one. A rank that has it receives nothing, so that no block comes twice.
std::vector<std::int64_t> received_blocks(std::uint32_t v, std::uint32_t p, std::int64_t n,
                                          std::int64_t start, const std::vector<std::uint32_t>& skips) {
  const auto q = static_cast<std::int64_t>(skips.size()) - 1;
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(n - 1 + q), -1);
  if (v == 0) return blocks;
  const ReceiveTable receive(v, p, skips);
  bool has_last = false;
  for (std::int64_t i = 0; i < n - 1 + q; ++i) {
    const std::int64_t k = (start + i) % q, phase = (start + i) / q * q - start;
    const std::int64_t block = std::min(receive.table()[static_cast<std::size_t>(k)] + phase, n - 1);
    if (block < 0 || (block == n - 1 && has_last)) continue;
    has_last = block == n - 1;
    blocks[static_cast<std::size_t>(i)] = block;
  }
  return blocks;
}

}  // namespace

std::uint64_t circulant_depth(std::uint32_t size, std::uint32_t blocks) {
  if (size == 1) return 0;
  const std::vector<std::uint32_t> skips = circulant_windows(size);
  std::uint64_t most_terms = 0;
  for (std::uint32_t v = 1; v < size; ++v) {
    std::uint64_t terms = 0;
    for (std::uint32_t rest = v, k = static_cast<std::uint32_t>(skips.size()); rest > 0; ++terms) {
      while (skips[k - 1] > rest) --k;
      rest -= skips[k - 1];
    }
    most_terms = std::max(most_terms, terms);
  }
  return most_terms + (blocks > 1 && size > 2 ? 1 : 0);
}

Moves circulant_moves(const SpreadView& at, std::uint32_t blocks) {
  const std::uint32_t p = at.size, v = (at.rank + p - at.root) % p;
  Moves moves;
  if (p == 1) return moves;
  const std::vector<std::uint32_t> skips = circulant_windows(p);
  const std::int64_t q = static_cast<std::int64_t>(skips.size()) - 1, n = blocks;
  // The first phase is cut short so that the last round of all is the last of a phase.
  const std::int64_t start = (q - (n - 1) % q) % q;
  const std::vector<std::int64_t> mine = received_blocks(v, p, n, start, skips);
  std::vector<std::vector<std::int64_t>> theirs;
  for (std::int64_t k = 0; k < q; ++k)
    theirs.push_back(received_blocks((v + skips[static_cast<std::size_t>(k)]) % p, p, n, start, skips));
  for (std::int64_t i = 0; i < n - 1 + q; ++i) {
    const auto k = static_cast<std::size_t>((start + i) % q), round = static_cast<std::size_t>(i);
    if (mine[round] >= 0) moves.push_back({false, (at.rank + p - skips[k]) % p, mine[round], 1});
    if (theirs[k][round] >= 0) moves.push_back({true, (at.rank + skips[k]) % p, theirs[k][round], 1});
  }
  return moves;
}

}  // namespace tutti
