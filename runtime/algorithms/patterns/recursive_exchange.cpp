// Fold, exchange digit by digit, unfold.
#include "runtime/algorithms/patterns/recursive_exchange.hpp"

#include <vector>

#include "runtime/algorithms/patterns/groups.hpp"

namespace tutti {

void emit_recursive_exchange(Builder& b, std::uint32_t radix) {
  const std::uint32_t p = b.size();
  if (p == 1) return b.copy(b.output(0), b.input(0));
  const std::uint32_t base = std::min(radix, p), count = floor_power(p, base).value;
  const RankGroups groups{p, count};
  const std::uint32_t group = groups.group_of(b.rank()), leader = groups.leader(group);
  if (b.rank() != leader) {
    b.send(leader, b.input(0));
    b.recv(leader, b.output(0));
    return;
  }

  Slice sum = b.input(0);
  std::vector<Slice> terms{sum};
  for (std::uint32_t i = 1; i < groups.size(group); ++i) {
    terms.push_back(b.scratch(i - 1, 0));
    b.recv(leader + i, terms.back());
  }
  if (terms.size() > 1) {
    sum = b.output(0);
    b.reduce(sum, terms);
  }
  for (std::uint32_t weight = 1; weight < count; weight *= base) {
    const std::uint32_t digit = group / weight % base;
    const auto peer = [&](std::uint32_t d) { return groups.leader(group + d * weight - digit * weight); };
    // Starting with the next digit, so that the members of an exchange do not all send to one at a time.
    for (std::uint32_t d = 1; d < base; ++d) b.send(peer((digit + d) % base), sum);
    terms.assign(base, sum);
    for (std::uint32_t d = 1, slot = 0; d < base; ++d) {
      const std::uint32_t from = (digit + base - d) % base;
      terms[from] = b.scratch(slot++, 0);
      b.recv(peer(from), terms[from]);
    }
    sum = b.output(0);
    b.reduce(sum, terms);
  }
  for (std::uint32_t i = 1; i < groups.size(group); ++i) b.send(leader + i, sum);
}

Claim recursive_exchange_claim(std::uint32_t p, std::uint32_t radix) {
  const std::uint32_t base = std::min(radix, p);
  if (p == 1) return {0, 0, 1};
  const Power power = floor_power(p, base);
  const RankGroups groups{p, power.value};
  const std::uint32_t folded = groups.size(0) - 1;
  return {power.exponent + (folded > 0 ? 2ULL : 0ULL), std::uint64_t{power.exponent} * (base - 1) + folded,
          1};
}

}  // namespace tutti
