// The catalogue's rows, grouped by collective. A row's emit function is declared here, next to its use: an
// algorithm is one new file, one row and one build line. It is longer than 500 lines because it is the one
// list.
#include "runtime/algorithms/catalog.hpp"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "runtime/algorithms/patterns/allgather_patterns.hpp"
#include "runtime/algorithms/patterns/hierarchical_claims.hpp"
#include "runtime/algorithms/patterns/recursive_exchange.hpp"
#include "runtime/algorithms/patterns/spread.hpp"
#include "runtime/algorithms/patterns/trees.hpp"

namespace tutti {

Emit allreduce_ring, allreduce_recursive_doubling, allreduce_rabenseifner, allreduce_reduce_broadcast,
    allreduce_knomial, allreduce_recursive_multiplying, allreduce_one_shot, allreduce_two_shot,
    allreduce_double_binary_tree, allreduce_circulant, allreduce_census, allreduce_hierarchical;
Emit reduce_scatter_ring, reduce_scatter_halving, reduce_scatter_direct, reduce_scatter_pat,
    reduce_scatter_circulant, reduce_scatter_bine, reduce_scatter_hierarchical;
Emit allgather_ring, allgather_recursive_doubling, allgather_bruck, allgather_direct, allgather_pat,
    allgather_circulant, allgather_bine, allgather_hierarchical;
Emit broadcast_linear, broadcast_binomial, broadcast_knomial, broadcast_chain, broadcast_circulant,
    broadcast_double_binary_tree, broadcast_scatter_allgather, broadcast_hierarchical;
Emit reduce_binomial, reduce_knomial, reduce_chain, reduce_circulant, reduce_double_binary_tree,
    reduce_rabenseifner, reduce_linear, reduce_direct, reduce_hierarchical;
Emit gather_binomial, gather_linear, gather_hierarchical, scatter_binomial, scatter_linear,
    scatter_hierarchical;
Emit alltoall_linear, alltoall_pairwise, alltoall_bruck, alltoall_hierarchical;
Emit barrier_dissemination, barrier_recursive_doubling, barrier_hierarchical;
Emit scan_recursive_doubling, scan_chain;

namespace {

using Params = const AlgorithmParams&;

// Knobs that several rows share. Segments: blocks of a pipeline (per tree of a double binary tree).
constexpr ParamRow kTreeRadix[] = {{"radix", &AlgorithmParams::radix, 4, 2, 64}};
constexpr ParamRow kPipelineSegments[] = {{"segments", &AlgorithmParams::segments, 8, 1, 1024}};

// Depth of a binomial tree; steps of a doubling.
constexpr std::uint64_t floor_log2(std::uint32_t p) { return std::bit_width(p) - 1ULL; }
constexpr std::uint64_t ceil_log2(std::uint32_t p) { return std::bit_width(p - 1); }
// Digits of the numbers below p.
constexpr std::uint64_t digits_below(std::uint32_t p, std::uint32_t radix) {
  std::uint64_t digits = 0;
  for (std::uint64_t weight = 1; weight < p; weight *= radix) ++digits;
  return digits;
}
// 0 for a group of one rank, which sends nothing.
constexpr std::uint64_t if_several(std::uint32_t p, std::uint64_t n) { return p > 1 ? n : 0; }

Claim scatter_rooted_claim(std::uint32_t p, Params) { return {floor_log2(p), p - 1ULL, p}; }
Claim direct_alltoall_claim(std::uint32_t p, Params) { return {if_several(p, 1), p - 1ULL, p}; }
Claim scan_doubling_claim(std::uint32_t p, Params) { return {floor_log2(p), ceil_log2(p), 1}; }
// Every rank but the last hands on the whole vector, in `segments` blocks.
Claim chain_claim(std::uint32_t p, Params params) {
  return {p - 1ULL, if_several(p, params.segments), params.segments};
}
Claim double_tree_claim(std::uint32_t p, Params params) {
  return {double_tree_depth(p), if_several(p, 2ULL * params.segments), 2ULL * params.segments};
}
// Each rank hands its sum up once.
Claim tree_reduce_claim(std::uint32_t p, Params params) {
  return {knomial_height(p, params.radix), if_several(p, 1), 1};
}
// The root serves all its children.
Claim tree_broadcast_claim(std::uint32_t p, Params params) {
  return {knomial_height(p, params.radix), knomial_tree(0, p, params.radix).children.size(), 1};
}
Claim bruck_alltoall_claim(std::uint32_t p, Params params) {
  std::uint64_t nonzero_digits = 0;
  for (std::uint32_t i = 1; i < p; ++i) {
    for (std::uint32_t rest = i; rest > 0; rest /= params.radix)
      nonzero_digits += rest % params.radix != 0 ? 1 : 0;
  }
  return {digits_below(p, params.radix), nonzero_digits, p};
}

// Knobs of the exchanges. Segments here are the segment pass, for long vectors.
constexpr ParamRow kSegments[] = {{"segments", &AlgorithmParams::segments, 1, 1, 256, true}};
constexpr ParamRow kTreeRadixSegments[] = {{"radix", &AlgorithmParams::radix, 4, 2, 64},
                                           {"segments", &AlgorithmParams::segments, 1, 1, 256, true}};
constexpr ParamRow kExchangeRadix[] = {{"radix", &AlgorithmParams::radix, 4, 2, 16}};
constexpr ParamRow kBruckRadix[] = {{"radix", &AlgorithmParams::radix, 2, 2, 64}};
constexpr ParamRow kAggregate[] = {{"aggregate", &AlgorithmParams::aggregate, 0, 0, 1U << 20},
                                   {"segments", &AlgorithmParams::segments, 1, 1, 256, true}};

// Parameters of hierarchical rows. leaders: in each domain; 0 stands for as many as the smallest domain has
// members. across: a number in the row's summary (patterns/leaders.cpp).
constexpr ParamRow kLeadersAcross3[] = {{"leaders", &AlgorithmParams::leaders, 0, 0, 255},
                                        {"across", &AlgorithmParams::across, 0, 0, 2},
                                        {"segments", &AlgorithmParams::segments, 1, 1, 256, true}};
constexpr ParamRow kLeadersAcross4[] = {{"leaders", &AlgorithmParams::leaders, 0, 0, 255},
                                        {"across", &AlgorithmParams::across, 0, 0, 3},
                                        {"segments", &AlgorithmParams::segments, 1, 1, 1024, true}};
constexpr ParamRow kLeadersAcross4Mates[] = {{"leaders", &AlgorithmParams::leaders, 0, 0, 255},
                                             {"across", &AlgorithmParams::across, 0, 0, 3},
                                             {"mates", &AlgorithmParams::mates, 0, 0, 1},
                                             {"segments", &AlgorithmParams::segments, 1, 1, 1024, true}};
constexpr ParamRow kLeadersAcross2[] = {{"leaders", &AlgorithmParams::leaders, 0, 0, 255},
                                        {"across", &AlgorithmParams::across, 0, 0, 1},
                                        {"segments", &AlgorithmParams::segments, 1, 1, 256, true}};
constexpr ParamRow kAcross2[] = {{"across", &AlgorithmParams::across, 0, 0, 1},
                                 {"segments", &AlgorithmParams::segments, 1, 1, 256, true}};
constexpr ParamRow kLeaders[] = {{"leaders", &AlgorithmParams::leaders, 0, 0, 255},
                                 {"segments", &AlgorithmParams::segments, 1, 1, 256, true}};

constexpr bool is_power_of_two(std::uint32_t p) { return std::has_single_bit(p); }
// Every rank hands on each block but one: what a minimal allgather or reduce-scatter sends.
Claim exchange_claim(std::uint32_t p, std::uint64_t rounds) { return {if_several(p, rounds), p - 1ULL, p}; }
std::uint64_t window_chain(std::uint32_t p, const std::vector<std::uint32_t>& windows) {
  return longest_chain(window_pattern(p, 0, windows), p);
}
// Folding costs a round before and one after; a chain through both takes a pair at either end of the
// butterfly, ranks v and ~v.
std::uint64_t folded_rounds(std::uint32_t p) {
  const std::uint32_t groups = std::bit_floor(p), pairs = p - groups;
  return floor_log2(p) + (pairs == 0 ? 0 : pairs > groups / 2 ? 2 : 1);
}
// Partners of 3 * 2^k ranks need one message less in a row than steps.
std::uint64_t bine_rounds(std::uint32_t p) {
  return ceil_log2(p) - (p % 3 == 0 && is_power_of_two(p / 3) ? 1 : 0);
}
// Block by block up and down both trees; the chain of additions passes through a slot every second block.
Claim allreduce_double_tree_claim(std::uint32_t p, Params params) {
  const std::uint64_t n = params.segments;
  std::uint64_t sent = 0, depth = 0;
  for (std::uint32_t rank = 0; rank < p && p > 1; ++rank) {
    std::uint64_t links = 0;
    for (const std::uint32_t tree : {0U, 1U}) {
      const TreeNode node = double_binary_tree(tree, rank, p);
      links += node.children.size() + (node.parent != TreeNode::kNone ? 1 : 0);
      depth = std::max<std::uint64_t>(depth, double_binary_tree_depth(tree, rank, p));
    }
    sent = std::max(sent, links * n);
  }
  return {if_several(p, 2 * depth + (n - 1) / 2), sent, 2 * n};
}
// Rank 0's: the ranges of 1, 2, 4, ... groups, the first of them pairs; then all but one block to its second.
Claim folded_doubling_claim(std::uint32_t p) {
  const std::uint32_t groups = std::bit_floor(p), pairs = p - groups;
  std::uint64_t sent = pairs > 0 ? p - 1ULL : 0;
  for (std::uint32_t n = 1; n < groups; n *= 2) sent += n + std::min(n, pairs);
  return {folded_rounds(p), sent, p};
}
// Up the tree of one half and down that of the other, or up and down the lower half's, which is at least as
// high.
Claim reduce_broadcast_claim(std::uint32_t p, Params) {
  if (p == 1) return {0, 0, 1};
  const std::uint32_t lower_size = std::bit_ceil(p) / 2;
  const std::uint64_t lower = knomial_height(lower_size), upper = knomial_height(p - lower_size);
  return {std::max(2 * lower, lower + 1 + upper), ceil_log2(p), 1};
}

constexpr AlgorithmRow kRows[] = {
    {Collective::allreduce,
     "ring",
     allreduce_ring,
     [](std::uint32_t p, Params) {
       return Claim{2 * (p - 1ULL), 2 * (p - 1ULL), p};
     },
     {.needs_commutative = true},
     true,
     "rounds 2(p-1); bytes sent 2(p-1)/p m",
     "reduce-scatter and allgather around a ring; fewest bytes, any p",
     kSegments},
    {Collective::allreduce,
     "recursive_doubling",
     allreduce_recursive_doubling,
     [](std::uint32_t p, Params) { return recursive_exchange_claim(p, 2); },
     {},
     true,
     "rounds floor(log2 p) (+2 unless p = 2^k); bytes sent m log2 p (+m)",
     "whole vectors with partners at distance 1, 2, 4, ...; short vectors"},
    {Collective::allreduce,
     "rabenseifner",
     allreduce_rabenseifner,
     [](std::uint32_t p, Params) {
       const std::uint64_t blocks = std::bit_floor(p);
       return Claim{2 * floor_log2(p) + (is_power_of_two(p) ? 0 : 3),
                    2 * (blocks - 1) + (is_power_of_two(p) ? 0 : blocks + blocks / 2), blocks};
     },
     {},
     true,
     "rounds 2 log2 P (+3 unless p = P = 2^k); bytes sent 2(P-1)/P m (+3/2 m)",
     "recursive halving and doubling, near partners first; medium and long vectors, p = 2^k",
     kSegments},
    {Collective::allreduce,
     "reduce_broadcast",
     allreduce_reduce_broadcast,
     reduce_broadcast_claim,
     {},
     true,
     "rounds at most 2 ceil(log2 p) - 1; bytes sent by a root ceil(log2 p) m",
     "up binomial trees of both halves, a swap, and down; fewest messages, short vectors",
     kSegments},
    {Collective::allreduce,
     "knomial",
     allreduce_knomial,
     [](std::uint32_t p, Params params) {
       return Claim{2 * knomial_height(p, params.radix), knomial_tree(0, p, params.radix).children.size(), 1};
     },
     {},
     true,
     "rounds about 2 log_radix p; bytes sent by rank 0 m per child",
     "up and down a tree of a chosen radix; oversubscribed ranks",
     kTreeRadixSegments},
    {Collective::allreduce,
     "recursive_multiplying",
     allreduce_recursive_multiplying,
     [](std::uint32_t p, Params params) { return recursive_exchange_claim(p, params.radix); },
     {},
     true,
     "rounds floor(log_radix p) (+2); bytes sent (radix-1) m per round",
     "recursive doubling in groups of a chosen radix; short vectors where messages are cheap",
     kExchangeRadix},
    {Collective::allreduce,
     "one_shot",
     allreduce_one_shot,
     [](std::uint32_t p, Params) { return recursive_exchange_claim(p, p); },
     {},
     true,
     "rounds 1; bytes sent (p-1) m",
     "everybody adds everybody's vector, in rank order; tiny vectors, few ranks"},
    {Collective::allreduce,
     "two_shot",
     allreduce_two_shot,
     [](std::uint32_t p, Params) {
       return Claim{if_several(p, 2), 2 * (p - 1ULL), p};
     },
     {},
     true,
     "rounds 2; bytes sent 2(p-1)/p m",
     "everybody adds one block, in rank order, and hands it to all; shared memory and crossbars",
     kSegments},
    {Collective::allreduce,
     "double_binary_tree",
     allreduce_double_binary_tree,
     allreduce_double_tree_claim,
     {},
     true,
     "rounds about 2 log2 p + segments/2; bytes sent 2 m",
     "each half of the vector up and down a tree, pipelined; long vectors, many ranks, any op",
     kPipelineSegments},
    {Collective::allreduce,
     "circulant",
     allreduce_circulant,
     [](std::uint32_t p, Params) {
       return Claim{2 * window_chain(p, circulant_windows(p)), 2 * (p - 1ULL), p};
     },
     {.needs_commutative = true},
     true,
     "rounds 2 ceil(log2 p) or 2 less; bytes sent 2(p-1)/p m",
     "fewest rounds for the fewest bytes, any p; medium and long vectors on flat networks",
     kSegments},
    {Collective::allreduce,
     "census",
     allreduce_census,
     [](std::uint32_t p, Params) {
       return Claim{ceil_log2(p), ceil_log2(p), 1};
     },
     {.needs_commutative = true},
     false,
     "rounds ceil(log2 p); bytes sent m ceil(log2 p)",
     "fewest rounds, any p; tiny vectors; ranks may differ in the last bits of a floating-point sum"},
    {Collective::allreduce,
     "hierarchical",
     allreduce_hierarchical,
     nullptr,
     {.needs_hierarchy = true},
     true,
     "rounds 2 + across; bytes sent about 2 m inside, leaving a domain what across sends of m",
     "sums in each domain, each leader's share across (0 recursive_doubling, 1 two_shot, 2 rabenseifner, "
     "3 the same by larger domains), and back; mates=1: in larger domains where a rank is alone",
     kLeadersAcross4Mates,
     hierarchical_allreduce_claim},
    {Collective::reduce_scatter,
     "ring",
     reduce_scatter_ring,
     [](std::uint32_t p, Params) { return exchange_claim(p, p - 1); },
     {.needs_commutative = true},
     true,
     "rounds p-1; bytes sent (p-1)/p m",
     "partial sums once around the ring; long vectors, any p",
     kSegments},
    {Collective::reduce_scatter,
     "halving",
     reduce_scatter_halving,
     [](std::uint32_t p, Params) {
       return Claim{folded_rounds(p), is_power_of_two(p) ? p - 1ULL : p, p};
     },
     {},
     true,
     "rounds floor(log2 p) (+1 or 2 unless p = 2^k); bytes sent (p-1)/p m (m)",
     "recursive halving, near partners first; medium vectors, any op",
     kSegments},
    {Collective::reduce_scatter,
     "direct",
     reduce_scatter_direct,
     [](std::uint32_t p, Params) { return exchange_claim(p, 1); },
     {},
     true,
     "rounds 1; bytes sent (p-1)/p m",
     "straight to the owner, who adds all in rank order; shared memory and crossbars",
     kSegments},
    {Collective::reduce_scatter,
     "pat",
     reduce_scatter_pat,
     [](std::uint32_t p, Params params) {
       return exchange_claim(p, longest_reverse_chain(pat_pattern(p, 0, params.aggregate), p));
     },
     {.needs_commutative = true},
     true,
     "rounds about log2 A + 3/4 P/A of log2 A + P/A - 1 messages; bytes sent (p-1)/p m",
     "up one tree per block, near ranks first; tapered networks, any p, bounded scratch",
     kAggregate},
    {Collective::reduce_scatter,
     "circulant",
     reduce_scatter_circulant,
     [](std::uint32_t p, Params) { return exchange_claim(p, window_chain(p, circulant_windows(p))); },
     {.needs_commutative = true},
     true,
     "rounds ceil(log2 p) or 1 less; bytes sent (p-1)/p m",
     "fewest rounds and bytes, any p; flat networks",
     kSegments},
    {Collective::reduce_scatter,
     "bine",
     reduce_scatter_bine,
     [](std::uint32_t p, Params) { return exchange_claim(p, bine_rounds(p)); },
     {.needs_commutative = true, .needs_even = true},
     true,
     "rounds ceil(log2 p); bytes sent (p-1)/p m",
     "a butterfly of shorter distances, even p; tapered networks and tori",
     kSegments},
    {Collective::reduce_scatter,
     "hierarchical",
     reduce_scatter_hierarchical,
     nullptr,
     {.needs_hierarchy = true},
     true,
     "rounds 2 (+1); bytes sent m, leaving a domain of n (p-n)/p m",
     "sums in each domain, each leader's across, to the owners",
     kLeaders,
     hierarchical_reduce_scatter_claim},
    {Collective::allgather,
     "ring",
     allgather_ring,
     [](std::uint32_t p, Params) { return exchange_claim(p, p - 1); },
     {},
     true,
     "rounds p-1; bytes sent (p-1)/p m",
     "from neighbour to neighbour; long vectors, any p",
     kSegments},
    {Collective::allgather,
     "recursive_doubling",
     allgather_recursive_doubling,
     [](std::uint32_t p, Params) { return folded_doubling_claim(p); },
     {},
     true,
     "rounds floor(log2 p) (+1 or 2 unless p = 2^k); bytes sent (p-1)/p m (up to twice)",
     "ranges of blocks with partners at distance 1, 2, 4, ...; short vectors"},
    {Collective::allgather,
     "bruck",
     allgather_bruck,
     [](std::uint32_t p, Params params) {
       return exchange_claim(p, window_chain(p, bruck_windows(p, params.radix)));
     },
     {},
     true,
     "rounds ceil(log_radix p), radix-1 messages each; bytes sent (p-1)/p m",
     "a growing window of blocks, any p; short vectors",
     kBruckRadix},
    {Collective::allgather,
     "direct",
     allgather_direct,
     [](std::uint32_t p, Params) { return exchange_claim(p, 1); },
     {},
     true,
     "rounds 1; bytes sent (p-1)/p m",
     "everybody to everybody; shared memory and crossbars",
     kSegments},
    {Collective::allgather,
     "pat",
     allgather_pat,
     [](std::uint32_t p, Params params) {
       return exchange_claim(p, longest_chain(pat_pattern(p, 0, params.aggregate), p));
     },
     {},
     true,
     "rounds up to ceil(log2 p), log2 A + P/A - 1 messages; bytes sent (p-1)/p m",
     "down one tree per block, far ranks first; tapered networks, any p",
     kAggregate},
    {Collective::allgather,
     "circulant",
     allgather_circulant,
     [](std::uint32_t p, Params) { return exchange_claim(p, window_chain(p, circulant_windows(p))); },
     {},
     true,
     "rounds ceil(log2 p) or 1 less; bytes sent (p-1)/p m",
     "fewest rounds and bytes, any p; flat networks",
     kSegments},
    {Collective::allgather,
     "bine",
     allgather_bine,
     [](std::uint32_t p, Params) { return exchange_claim(p, bine_rounds(p)); },
     {.needs_even = true},
     true,
     "rounds ceil(log2 p); bytes sent (p-1)/p m",
     "a butterfly of shorter distances, even p; tapered networks and tori",
     kSegments},
    {Collective::allgather,
     "hierarchical",
     allgather_hierarchical,
     nullptr,
     {.needs_hierarchy = true},
     true,
     "rounds 1 (+1) + across; bytes leaving a domain of n n(D-1)/p m, D domains (direct)",
     "blocks in each domain, each leader's across (0 direct, 1 ring, 2 bruck), and to all mates",
     kLeadersAcross3,
     hierarchical_allgather_claim},
    {Collective::broadcast,
     "linear",
     broadcast_linear,
     [](std::uint32_t p, Params) {
       return Claim{if_several(p, 1), p - 1ULL, 1};
     },
     {},
     true,
     "rounds 1; bytes sent by the root (p-1) m",
     "from the root to every rank; shared memory, few ranks",
     kSegments},
    {Collective::broadcast,
     "binomial",
     broadcast_binomial,
     [](std::uint32_t p, Params) { return tree_broadcast_claim(p, {.radix = 2}); },
     {},
     true,
     "rounds floor(log2 p); bytes sent by the root ceil(log2 p) m",
     "down a binomial tree; short vectors"},
    {Collective::broadcast,
     "knomial",
     broadcast_knomial,
     tree_broadcast_claim,
     {},
     true,
     "rounds about log_radix p; bytes sent by the root m per child",
     "down a tree of a chosen radix; short vectors where messages are cheap",
     kTreeRadix},
    {Collective::broadcast,
     "chain",
     broadcast_chain,
     chain_claim,
     {},
     true,
     "rounds p-1 (segments + p-2 steps); bytes sent m",
     "from rank to rank, pipelined; long vectors, few ranks",
     kPipelineSegments},
    {Collective::broadcast,
     "circulant",
     broadcast_circulant,
     [](std::uint32_t p, Params params) {
       const std::uint64_t n = params.segments;
       return Claim{circulant_depth(p, params.segments), if_several(p, n - 1 + ceil_log2(p)), n};
     },
     {},
     true,
     "rounds about log2 p (segments-1 + ceil(log2 p) steps); bytes sent m (1 + (ceil(log2 p)-1)/segments)",
     "pipelined in the fewest steps possible, any p; medium and long vectors",
     kPipelineSegments},
    {Collective::broadcast,
     "double_binary_tree",
     broadcast_double_binary_tree,
     double_tree_claim,
     {},
     true,
     "rounds about log2 p + 1; bytes sent m",
     "half of the vector down each of two trees, pipelined; long vectors, many ranks",
     kPipelineSegments},
    {Collective::broadcast,
     "scatter_allgather",
     broadcast_scatter_allgather,
     [](std::uint32_t p, Params) {
       return Claim{p - 1ULL, 2 * (p - 1ULL), p};
     },
     {},
     true,
     "rounds p-1; bytes sent by the root 2(p-1)/p m",
     "binomial scatter and ring allgather (van de Geijn); long vectors"},
    {Collective::broadcast,
     "hierarchical",
     broadcast_hierarchical,
     nullptr,
     {.needs_hierarchy = true},
     true,
     "rounds 2 (1 with one leader) + across; bytes leaving the root's domain what across sends of m",
     "shares to the mates, across (0 binomial, 1 linear, 2 circulant, 3 the same by larger domains), and "
     "together again",
     kLeadersAcross4,
     hierarchical_broadcast_claim},
    {Collective::reduce,
     "binomial",
     reduce_binomial,
     [](std::uint32_t p, Params) { return tree_reduce_claim(p, {.radix = 2}); },
     {.needs_commutative = true},
     true,
     "rounds floor(log2 p); bytes sent m",
     "up a binomial tree; short vectors"},
    {Collective::reduce,
     "knomial",
     reduce_knomial,
     tree_reduce_claim,
     {.needs_commutative = true},
     true,
     "rounds about log_radix p; bytes sent m",
     "up a tree of a chosen radix; short vectors where messages are cheap",
     kTreeRadix},
    {Collective::reduce,
     "chain",
     reduce_chain,
     chain_claim,
     {.needs_commutative = true},
     true,
     "rounds p-1 (segments + p-2 steps); bytes sent m",
     "from rank to rank, pipelined; long vectors, few ranks",
     kPipelineSegments},
    {Collective::reduce,
     "circulant",
     reduce_circulant,
     [](std::uint32_t p, Params params) {
       const std::uint64_t n = params.segments;
       return Claim{circulant_depth(p, params.segments), if_several(p, n), n};
     },
     {.needs_commutative = true},
     true,
     "rounds about log2 p (segments-1 + ceil(log2 p) steps); bytes sent m",
     "the circulant broadcast backwards; medium and long vectors, any p",
     kPipelineSegments},
    {Collective::reduce,
     "double_binary_tree",
     reduce_double_binary_tree,
     double_tree_claim,
     {.needs_commutative = true},
     true,
     "rounds about log2 p + 1; bytes sent m",
     "half of the vector up each of two trees, pipelined; long vectors, many ranks",
     kPipelineSegments},
    {Collective::reduce,
     "rabenseifner",
     reduce_rabenseifner,
     [](std::uint32_t p, Params) {
       const std::uint64_t rounds = window_chain(p, circulant_windows(p)) + floor_log2(p);
       return Claim{if_several(p, rounds), p - 1 + knomial_largest_subtree(p, 2), p};
     },
     {.needs_commutative = true},
     true,
     "rounds at most 2 ceil(log2 p); bytes sent at most about 3/2 m",
     "reduce-scatter and binomial gather; long vectors, any p"},
    {Collective::reduce,
     "linear",
     reduce_linear,
     [](std::uint32_t p, Params) {
       return Claim{if_several(p, 1), if_several(p, 1), 1};
     },
     {},
     true,
     "rounds 1; bytes sent m, received by the root (p-1) m",
     "all to the root, which adds in rank order; any op; short vectors, few ranks"},
    {Collective::reduce,
     "direct",
     reduce_direct,
     [](std::uint32_t p, Params) {
       return Claim{if_several(p, 2), if_several(p, p), p};
     },
     {},
     true,
     "rounds 2; bytes sent m",
     "every rank adds one block in rank order, the root collects them; any op; long vectors"},
    {Collective::reduce,
     "hierarchical",
     reduce_hierarchical,
     nullptr,
     {.needs_hierarchy = true},
     true,
     "rounds 2 (1 with one leader) + across; bytes leaving a domain m",
     "sums in each domain, each leader's share across (0 linear, 1 direct), to the root",
     kLeadersAcross2,
     hierarchical_reduce_claim},
    {Collective::gather,
     "binomial",
     gather_binomial,
     [](std::uint32_t p, Params) {
       return Claim{floor_log2(p), knomial_largest_subtree(p, 2), p};
     },
     {},
     true,
     "rounds floor(log2 p); bytes sent at most about m/2",
     "up a binomial tree; small blocks"},
    {Collective::gather,
     "linear",
     gather_linear,
     [](std::uint32_t p, Params) {
       return Claim{if_several(p, 1), if_several(p, 1), p};
     },
     {},
     true,
     "rounds 1; bytes sent m/p",
     "straight to the root; large blocks"},
    {Collective::gather,
     "hierarchical",
     gather_hierarchical,
     nullptr,
     {.needs_hierarchy = true},
     true,
     "rounds 1 + across; bytes sent n/p m by the first of each domain (linear)",
     "the first of each domain collects, and what leaves it leaves together (across 0 linear, 1 binomial)",
     kAcross2,
     hierarchical_gather_claim},
    {Collective::scatter,
     "binomial",
     scatter_binomial,
     scatter_rooted_claim,
     {},
     true,
     "rounds floor(log2 p); bytes sent by the root (p-1)/p m",
     "down a binomial tree; small blocks"},
    {Collective::scatter,
     "linear",
     scatter_linear,
     [](std::uint32_t p, Params) {
       return Claim{if_several(p, 1), p - 1ULL, p};
     },
     {},
     true,
     "rounds 1; bytes sent by the root (p-1)/p m",
     "straight from the root; large blocks"},
    {Collective::scatter,
     "hierarchical",
     scatter_hierarchical,
     nullptr,
     {.needs_hierarchy = true},
     true,
     "rounds 1 + across; bytes sent by the root (p-1)/p m",
     "what enters a domain enters together, at its first member (across 0 linear, 1 binomial)",
     kAcross2,
     hierarchical_scatter_claim},
    {Collective::alltoall,
     "linear",
     alltoall_linear,
     direct_alltoall_claim,
     {},
     true,
     "rounds 1 of p-1 messages; bytes sent (p-1)/p m",
     "every block straight to its owner, all at once"},
    {Collective::alltoall,
     "pairwise",
     alltoall_pairwise,
     direct_alltoall_claim,
     {},
     true,
     "rounds 1 of p-1 messages; bytes sent (p-1)/p m",
     "every block straight to its owner, posted in disjoint pairs; large blocks"},
    {Collective::alltoall,
     "bruck",
     alltoall_bruck,
     bruck_alltoall_claim,
     {.equal_counts_only = true},
     true,
     "rounds ceil(log_radix p); bytes sent about m (radix-1)/radix log_radix p",
     "blocks travel together, digit by digit of the distance; small blocks",
     kTreeRadix},
    {Collective::alltoall,
     "hierarchical",
     alltoall_hierarchical,
     nullptr,
     {.equal_counts_only = true, .needs_hierarchy = true},
     true,
     "rounds 2 (+1); bytes sent at most 2 m, leaving a domain of n n(p-n)/p m in few messages",
     "to the mate that leads for the receiver, across together, and to members that do not lead",
     kLeaders,
     hierarchical_alltoall_claim},
    {Collective::barrier,
     "dissemination",
     barrier_dissemination,
     [](std::uint32_t p, Params params) {
       return Claim{digits_below(p, params.radix), knomial_tree(0, p, params.radix).children.size(), 1};
     },
     {},
     true,
     "rounds ceil(log_radix p); no data",
     "each rank tells ranks at growing distances; any p",
     kTreeRadix},
    {Collective::barrier,
     "recursive_doubling",
     barrier_recursive_doubling,
     [](std::uint32_t p, Params) {
       const bool is_folded = !std::has_single_bit(p);
       return Claim{floor_log2(p) + (is_folded ? 2 : 0), floor_log2(p) + (is_folded ? 1 : 0), 1};
     },
     {},
     true,
     "rounds floor(log2 p), 2 more unless p is a power of two; no data",
     "pairs of ranks at doubling distances"},
    {Collective::barrier,
     "hierarchical",
     barrier_hierarchical,
     nullptr,
     {.needs_hierarchy = true},
     true,
     "rounds 2 + dissemination over the domains; no data",
     "members report to the first of their domain; those meet",
     {},
     hierarchical_barrier_claim},
    {Collective::scan,
     "recursive_doubling",
     scan_recursive_doubling,
     scan_doubling_claim,
     {},
     true,
     "rounds floor(log2 p); bytes sent ceil(log2 p) m",
     "sums of doubling ranges of ranks, in rank order; any op; short vectors"},
    {Collective::scan,
     "chain",
     scan_chain,
     chain_claim,
     {},
     true,
     "rounds p-1 (segments + p-2 steps); bytes sent m",
     "from rank to rank in rank order, pipelined; any op; long vectors",
     kPipelineSegments},
    {Collective::exscan,
     "recursive_doubling",
     scan_recursive_doubling,
     scan_doubling_claim,
     {},
     true,
     "rounds floor(log2 p); bytes sent ceil(log2 p) m",
     "sums of doubling ranges of ranks, in rank order; any op; short vectors"},
    {Collective::exscan,
     "chain",
     scan_chain,
     chain_claim,
     {},
     true,
     "rounds p-1 (segments + p-2 steps); bytes sent m",
     "from rank to rank in rank order, pipelined; any op; long vectors",
     kPipelineSegments},
};

}  // namespace

std::span<const AlgorithmRow> catalog() { return kRows; }

const AlgorithmRow* find_algorithm(Collective collective, std::string_view name) {
  for (const AlgorithmRow& row : kRows) {
    if (row.collective == collective && row.name == name) return &row;
  }
  return nullptr;
}

Claim claim_of(const AlgorithmRow& row, std::uint32_t p, const AlgorithmParams& params,
               const Hierarchy* hierarchy) {
  return row.legality.needs_hierarchy ? row.hierarchy_claim(*hierarchy, params) : row.claim(p, params);
}

bool has_segment_pass(const AlgorithmRow& row) {
  return std::any_of(row.params.begin(), row.params.end(),
                     [](const ParamRow& param) { return param.is_pass; });
}

AlgorithmParams default_params(const AlgorithmRow& row) {
  AlgorithmParams params;
  for (const ParamRow& param : row.params) params.*param.field = param.default_value;
  return params;
}

// Bits: radix 8 (to 64), leaders 8 (255), segments 16 (1024), channels 8, aggregate 21 (2^20), across 2 (3), mates 1.
std::uint64_t pack(const AlgorithmParams& params) {
  return std::uint64_t{params.radix} | (std::uint64_t{params.leaders} << 8U) |
         (std::uint64_t{params.segments} << 16U) | (std::uint64_t{params.channels} << 32U) |
         (std::uint64_t{params.aggregate} << 40U) | (std::uint64_t{params.across} << 61U) |
         (std::uint64_t{params.mates} << 63U);
}

}  // namespace tutti
