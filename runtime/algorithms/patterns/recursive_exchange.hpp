// Recursive exchange: an allreduce of whole vectors in groups of `radix` ranks, log_radix p times. Recursive
// doubling, recursive multiplying and one-shot are this with different radices. Knows no transport, no dtype
// and no counts.
#pragma once

#include "runtime/algorithms/catalog.hpp"
#include "runtime/schedule/builder.hpp"

namespace tutti {

// Grid of one block. Ranks fold into radix^k groups of neighbours (groups.hpp). The leaders exchange with the
// leaders that differ in one digit, lowest digit first, and add in rank order; then the other members get the
// result. All ranks that add use the same values in the same order: same bits everywhere. Scratch: at most
// radix - 1 vectors, or the members of a group beyond the leader if they are more.
void emit_recursive_exchange(Builder& b, std::uint32_t radix);
Claim recursive_exchange_claim(std::uint32_t p, std::uint32_t radix);

}  // namespace tutti
