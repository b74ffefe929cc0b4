// Folding p ranks into fewer groups, for algorithms that want a power of a radix.
// Arithmetic only.
#pragma once

#include <algorithm>
#include <cstdint>

namespace tutti {

// `count` groups of consecutive ranks whose sizes differ by at most one, larger ones first; the first rank of
// a group leads it. Consecutive, so that folding a group's values into its leader keeps rank order.
struct RankGroups {
  std::uint32_t p = 1;
  std::uint32_t count = 1;

  std::uint32_t larger() const { return p % count; }  // groups that hold one rank more
  std::uint32_t first(std::uint32_t group) const { return group * (p / count) + std::min(group, larger()); }
  std::uint32_t size(std::uint32_t group) const { return p / count + (group < larger() ? 1 : 0); }
  std::uint32_t leader(std::uint32_t group) const { return first(group); }
  std::uint32_t group_of(std::uint32_t rank) const {
    const std::uint32_t base = p / count, in_larger = larger() * (base + 1);
    return rank < in_larger ? rank / (base + 1) : larger() + (rank - in_larger) / base;
  }
  bool is_leader(std::uint32_t rank) const { return first(group_of(rank)) == rank; }
};

// The largest power of radix that is at most p (radix >= 2, p >= 1), and its exponent.
struct Power {
  std::uint32_t value = 1;
  std::uint32_t exponent = 0;
};
inline Power floor_power(std::uint32_t p, std::uint32_t radix) {
  Power power;
  for (; power.value <= p / radix; ++power.exponent) power.value *= radix;
  return power;
}

}  // namespace tutti
