// Rank arithmetic of the exchange patterns.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

#include <algorithm>
#include <bit>
#include <functional>

#include "runtime/algorithms/patterns/groups.hpp"

namespace tutti {
namespace {

// A round of one message each way in relative blocks: `received` from r + distance, who sends what it calls
// received.first - distance, ...; so r sends that to r - distance.
void add_shift(ExchangeRound& round, std::uint32_t p, std::uint32_t r, std::uint32_t distance,
               const BlockRun& received) {
  const std::int64_t at = r;
  round.sends.push_back(
      {(r + p - distance) % p, {at + received.first - distance, received.count, received.stride}});
  round.recvs.push_back({(r + distance) % p, {at + received.first, received.count, received.stride}});
}

}  // namespace

ExchangePattern ring_pattern(std::uint32_t p, std::uint32_t r) {
  ExchangePattern pattern{p, r, {}};
  const std::int64_t at = r;
  for (std::uint32_t t = 0; t + 1 < p; ++t)
    pattern.rounds.push_back({{{(r + 1) % p, {at - t}}}, {{(r + p - 1) % p, {at - t - 1}}}});
  return pattern;
}

std::vector<std::uint32_t> circulant_windows(std::uint32_t p) {
  std::vector<std::uint32_t> windows{p};
  while (windows.back() > 1) windows.push_back((windows.back() + 1) / 2);
  std::reverse(windows.begin(), windows.end());
  return windows;
}

std::vector<std::uint32_t> bruck_windows(std::uint32_t p, std::uint32_t radix) {
  std::vector<std::uint32_t> windows;
  for (std::uint64_t n = 1; n < p; n *= radix) windows.push_back(static_cast<std::uint32_t>(n));
  windows.push_back(p);
  return windows;
}

ExchangePattern window_pattern(std::uint32_t p, std::uint32_t r, std::span<const std::uint32_t> windows) {
  ExchangePattern pattern{p, r, {}};
  for (std::size_t i = 0; i + 1 < windows.size(); ++i) {
    const std::uint32_t n = windows[i], next = windows[i + 1];
    ExchangeRound& round = pattern.rounds.emplace_back();
    for (std::uint32_t distance = n; distance < next; distance += n)
      add_shift(round, p, r, distance, {distance, std::min(n, next - distance), 1});
  }
  return pattern;
}

ExchangePattern pat_pattern(std::uint32_t p, std::uint32_t r, std::uint32_t aggregate) {
  ExchangePattern pattern{p, r, {}};
  const std::uint32_t size = std::bit_ceil(p), most = std::max(size / 2, 1U);
  const std::uint32_t trees = aggregate == 0 ? most : std::min(std::bit_floor(aggregate), most);
  const std::uint32_t span = size / trees;  // offsets below one subtree's root
  const auto add = [&](std::uint32_t first, std::uint32_t count, std::uint32_t stride,
                       std::uint32_t distance) {
    if (first >= p) return;
    add_shift(pattern.rounds.emplace_back(), p, r, distance,
              {first, std::min(count, (p - 1 - first) / stride + 1), stride});
  };
  // The roots of the subtrees, far dimensions first.
  for (std::uint32_t scale = trees / 2; scale >= 1; scale /= 2)
    add(scale * span, trees / (2 * scale), 2 * scale * span, scale * span);
  // All subtrees at once, depth first, far children first.
  const std::function<void(std::uint32_t, std::uint32_t)> descend = [&](std::uint32_t node,
                                                                        std::uint32_t bit) {
    for (; bit >= 1; bit /= 2) {
      add(node + bit, trees, span, bit);
      descend(node + bit, bit / 2);
    }
  };
  descend(0, span / 2);
  return pattern;
}

ExchangePattern butterfly_pattern(std::uint32_t power_of_two, std::uint32_t v, ButterflyOrder order) {
  const auto bits = static_cast<std::uint32_t>(std::countr_zero(power_of_two));
  const auto reversed = [bits](std::uint32_t x) {
    std::uint32_t y = 0;
    for (std::uint32_t i = 0; i < bits; ++i) y |= (x >> i & 1) << (bits - 1 - i);
    return y;
  };
  const bool has_ranges = order == ButterflyOrder::far_first_ranges;
  ExchangePattern pattern{power_of_two, has_ranges ? reversed(v) : v, {}};
  for (std::uint32_t i = 0; i < bits; ++i) {
    const std::uint32_t j = order == ButterflyOrder::near_first ? i : bits - 1 - i, distance = 1U << j;
    const auto held = [&](std::uint32_t rank) -> BlockRun {
      if (order == ButterflyOrder::near_first) return {rank >> j << j, distance, 1};
      const std::uint32_t low = rank & (2 * distance - 1), count = power_of_two / (2 * distance);
      return has_ranges ? BlockRun{reversed(low), count, 1} : BlockRun{low, count, 2 * distance};
    };
    const std::uint32_t partner = v ^ distance;
    pattern.rounds.push_back({{{partner, held(v)}}, {{partner, held(partner)}}});
  }
  return pattern;
}

namespace {

// The blocks of the ranks in a run of groups: leaders of the larger groups, their second members, the rest.
// In this order few runs come out: one for consecutive groups, at most three for strided ones.
std::vector<BlockRun> blocks_of_groups(const RankGroups& groups, const BlockRun& run) {
  std::vector<std::int64_t> blocks, seconds, rest;
  for (std::uint32_t k = 0; k < run.count; ++k) {
    const auto group = static_cast<std::uint32_t>(run.first + std::int64_t{k} * run.stride);
    const bool is_pair = groups.size(group) == 2;
    (is_pair ? blocks : rest).push_back(groups.leader(group));
    if (is_pair) seconds.push_back(groups.leader(group) + 1);
  }
  blocks.insert(blocks.end(), seconds.begin(), seconds.end());
  blocks.insert(blocks.end(), rest.begin(), rest.end());
  if (run.stride == 1) std::sort(blocks.begin(), blocks.end());
  return to_runs(blocks);
}

}  // namespace

ExchangePattern folded_butterfly_pattern(std::uint32_t p, std::uint32_t r, ButterflyOrder order,
                                         bool resend_own) {
  const RankGroups groups{p, std::bit_floor(p)};
  const std::uint32_t group = groups.group_of(r), leader = groups.leader(group);
  const bool is_leader = r == leader;
  const BlockRun others = resend_own ? BlockRun{0, p, 1} : BlockRun{std::int64_t{leader} + 2, p - 1, 1};
  const std::int64_t second = leader + 1;

  ExchangePattern pattern{p, r, {}};
  ExchangeRound before, after;
  if (groups.size(group) == 2 && is_leader) {
    before.recvs.push_back({leader + 1, {second}});
    after.sends.push_back({leader + 1, others});
  } else if (!is_leader) {
    before.sends.push_back({leader, {second}});
    after.recvs.push_back({leader, others});
  }
  if (groups.larger() > 0) pattern.rounds.push_back(before);
  for (const ExchangeRound& inner : butterfly_pattern(groups.count, group, order).rounds) {
    ExchangeRound& round = pattern.rounds.emplace_back();
    if (!is_leader) continue;
    for (const auto& [peer, run] : inner.sends) {
      for (const BlockRun& part : blocks_of_groups(groups, run))
        round.sends.push_back({groups.leader(peer), part});
    }
    for (const auto& [peer, run] : inner.recvs) {
      for (const BlockRun& part : blocks_of_groups(groups, run))
        round.recvs.push_back({groups.leader(peer), part});
    }
  }
  if (groups.larger() > 0) pattern.rounds.push_back(after);
  return pattern;
}

namespace {

struct Edge {
  std::uint32_t from = 0;
  std::uint32_t to = 0;
};

// How block 0 spreads from rank 0, step by step: in a step every rank that has it offers it to its partner.
// Even p: a step's partners are a matching, so no rank is offered two copies at once.
std::vector<std::vector<Edge>> bine_spread(std::uint32_t p) {
  const auto steps = static_cast<std::uint32_t>(std::bit_width(p - 1));
  std::vector<std::vector<Edge>> spread;
  std::vector<std::uint32_t> have{0};
  std::vector<bool> is_reached(p);
  is_reached[0] = true;
  for (std::uint32_t s = steps; s-- > 0;) {
    const std::int64_t power = std::int64_t{2} << s, distance = (1 + (s % 2 == 0 ? power : -power)) / 3;
    std::vector<Edge>& edges = spread.emplace_back();
    for (const std::uint32_t from : have) {
      const std::int64_t n = p, to = (from % 2 == 0 ? from + distance : from - distance) % n;
      edges.push_back({from, static_cast<std::uint32_t>((to + n) % n)});
    }
    edges.erase(std::remove_if(edges.begin(), edges.end(), [&](const Edge& e) { return is_reached[e.to]; }),
                edges.end());
    for (const Edge& edge : edges) {
      have.push_back(edge.to);
      is_reached[edge.to] = true;
    }
  }
  return spread;
}

}  // namespace

ExchangePattern bine_pattern(std::uint32_t p, std::uint32_t r) {
  ExchangePattern pattern{p, r, {}};
  if (p == 1) return pattern;
  // An even block x spreads as block 0 does, shifted: rank i of block 0's spread is rank x + i. An odd
  // block's spread is its mirror image: rank i is rank x - i. So for each i there is one block for which r is
  // i.
  const auto block_for = [p, r](std::uint32_t i) { return r % 2 == i % 2 ? (r + p - i) % p : (r + i) % p; };
  const auto rank_of = [p](std::uint32_t i, std::uint32_t block) {
    return block % 2 == 0 ? (block + i) % p : (block + p - i) % p;
  };
  for (const std::vector<Edge>& edges : bine_spread(p)) {
    std::vector<std::int64_t> sent, received;
    std::uint32_t peer = r;  // all edges of a step lead to one partner
    for (const Edge& edge : edges) {
      const std::uint32_t out = block_for(edge.from), in = block_for(edge.to);
      sent.push_back(out);
      received.push_back(in);
      peer = rank_of(edge.to, out);
    }
    std::sort(sent.begin(), sent.end());
    std::sort(received.begin(), received.end());
    ExchangeRound& round = pattern.rounds.emplace_back();
    for (const BlockRun& run : to_runs(sent)) round.sends.push_back({peer, run});
    for (const BlockRun& run : to_runs(received)) round.recvs.push_back({peer, run});
  }
  return pattern;
}

namespace {

// Calls use(i) for the blocks of a run, relative to a rank.
template <class Use>
void for_each_relative(const BlockRun& run, std::uint32_t rank, std::uint32_t p, Use use) {
  const std::int64_t n = p;
  for (std::uint32_t k = 0; k < run.count; ++k) {
    const std::int64_t block = (run.first + std::int64_t{k} * run.stride - rank) % n;
    use(static_cast<std::size_t>((block + n) % n));
  }
}

}  // namespace

std::uint64_t longest_chain(const ExchangePattern& of_rank_0, std::uint32_t p) {
  std::vector<std::uint64_t> chain(p, 0);  // up to the message that brought relative block i
  for (const ExchangeRound& round : of_rank_0.rounds) {
    std::vector<std::uint64_t> after = chain;
    for (const auto& [peer, run] : round.recvs) {
      std::uint64_t sent = 0;
      for_each_relative(run, peer, p, [&](std::size_t i) { sent = std::max(sent, chain[i]); });
      for_each_relative(run, 0, p, [&](std::size_t i) { after[i] = sent + 1; });
    }
    chain = after;
  }
  return *std::max_element(chain.begin(), chain.end());
}

std::uint64_t longest_reverse_chain(const ExchangePattern& of_rank_0, std::uint32_t p) {
  std::vector<std::uint64_t> chain(p, 0);  // up to the partial sum of relative block i
  std::uint64_t before = 0, last = 0;      // up to the additions of the last round but one, of the last
  for (auto round = of_rank_0.rounds.rbegin(); round != of_rank_0.rounds.rend(); ++round) {
    std::vector<std::uint64_t> after = chain;
    std::uint64_t added = 0;
    for (const auto& [peer, run] : round->sends) {  // backwards: arrives from peer
      std::uint64_t sent = before;
      for_each_relative(run, peer, p, [&](std::size_t i) { sent = std::max(sent, chain[i]); });
      for_each_relative(run, 0, p, [&](std::size_t i) {
        after[i] = std::max(after[i], sent + 1);
        added = std::max(added, after[i]);
      });
    }
    chain = after;
    before = last;
    last = added;
  }
  return *std::max_element(chain.begin(), chain.end());
}

}  // namespace tutti
