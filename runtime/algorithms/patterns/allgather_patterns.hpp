// The exchange patterns there are: rank arithmetic only, each the steps of one rank `r` of `p` in an
// allgather of p blocks. Knows no builder, no collective and no buffers.
//
// "Relative block i" of rank r is block (r + i) mod p. All but Bine and the butterflies are the same on every
// rank in relative blocks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/algorithms/patterns/exchange.hpp"

namespace tutti {

// Round t: block r - t to r + 1. p-1 rounds.
ExchangePattern ring_pattern(std::uint32_t p, std::uint32_t r);

// A window of relative blocks 0..n-1 grows as `windows` says (1, ..., p). One round takes it from n to n', by
// up to n blocks from each of r + n, r + 2n, ...
ExchangePattern window_pattern(std::uint32_t p, std::uint32_t r, std::span<const std::uint32_t> windows);
// 1, ..., ceil(ceil(p/2)/2), ceil(p/2), p: one message of at most n blocks per round, ceil(log2 p) rounds.
// Source: Traeff, arXiv 2410.14234.
std::vector<std::uint32_t> circulant_windows(std::uint32_t p);
// 1, radix, radix^2, ..., p: ceil(log_radix p) rounds of up to radix - 1 messages. radix p is the direct
// exchange. Source: Bruck et al., IEEE TPDS 1997.
std::vector<std::uint32_t> bruck_windows(std::uint32_t p, std::uint32_t radix);

// Block x travels down a binomial tree of offsets: rank x - o gets it from rank x - (o - lowest set bit of
// o). Far dimensions come first, so that messages of many blocks go to near ranks.
// `aggregate` subtrees share a message: a power of two, at most half the ranks; 0 means half the ranks. That
// takes log2(aggregate) + P/aggregate - 1 messages, P = p rounded up to a power of two, and fewer where all
// offsets of a message are beyond p.
// Source: NCCL 2.23, arXiv 2506.20252.
ExchangePattern pat_pattern(std::uint32_t p, std::uint32_t r, std::uint32_t aggregate);

// Butterfly; the partner in round j is v xor 2^j (near_first) or v xor 2^(log2 P - 1 - j) (far_first).
// near_first: a rank holds a range of neighbours, which grows while the partners move away. far_first:
// strided blocks; the large messages stay near. far_first_ranges: as far_first, but rank v's own block is
// numbered by the reversed bits of v, which makes every message one range. It suits an allreduce, where any
// rank may finish any block.
enum class ButterflyOrder : std::uint8_t { near_first, far_first, far_first_ranges };
// P a power of two.
ExchangePattern butterfly_pattern(std::uint32_t power_of_two, std::uint32_t v, ButterflyOrder order);
// Any p: ranks fold into a power of two of groups of one or two neighbours (groups.hpp), whose leaders run
// the butterfly. Other members send their block first and get the others afterwards. With `resend_own` they
// get their own block too. Read backwards they then send all blocks and get a finished one, so that a
// reduce-scatter (far_first) combines in rank order.
ExchangePattern folded_butterfly_pattern(std::uint32_t p, std::uint32_t r, ButterflyOrder order,
                                         bool resend_own);

// Butterfly for even p with partners r +- (1 - (-2)^(s+1)) / 3 (even ranks plus, odd ranks minus), s counting
// down: 2/3 of the distance of a binomial butterfly. A rank takes the first copy of a block that can reach
// it. ceil(log2 p) rounds; messages of several runs. Source: Bine, arXiv 2508.17311; Swing, arXiv 2401.09356.
ExchangePattern bine_pattern(std::uint32_t p, std::uint32_t r);

// Longest chain of messages of a pattern that is the same on every rank in relative blocks, from rank 0's
// part: what a catalogue row claims as rounds. Chains are shorter than the number of rounds where a round
// does not need what the one before it brought.
std::uint64_t longest_chain(const ExchangePattern& of_rank_0, std::uint32_t p);
// The same for the pattern backwards as emit_reduce_scatter does it: besides what a message adds up, it waits
// for the additions of two rounds before, whose scratch it lands in.
std::uint64_t longest_reverse_chain(const ExchangePattern& of_rank_0, std::uint32_t p);

}  // namespace tutti
