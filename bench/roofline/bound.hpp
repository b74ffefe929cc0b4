// The shortest time that a collective can take on a machine whose ceilings are known.
// Knows no algorithm: only the bytes that any of them must move. Pure functions.
//
//   bound = line + max(crossing, traffic)
//
//   line      p > 1: no rank can end before it knows that the last rank has arrived; one cache line's way
//   crossing  bytes that the busiest rank's core must get from other cores, at the rate of fresh bytes: the best
//             of copying, adding and the kernel's reading, at the size of the working set. The term stops growing
//             at the size of a core's cache, because further bytes do not come from a cache.
//   traffic   bytes that must be loaded and stored, spread evenly over the cores, at the best rate of own copies
//             and sums with all ranks at work, at the size of the working set. Every rank loads its share of the
//             inputs and stores its share of the outputs.
//
// m is the full vector as everywhere in the benchmark (harness.hpp); inputs have just been written by their
// owners. docs/performance.md holds the table of demands.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/roofline/ceilings.hpp"
#include "runtime/base/types.hpp"

namespace tutti::bench {

// The bytes that a rank must move. The texts are the same as formulas in m and p.
struct Demand {
  double crossing = 0, load = 0, store = 0;
  double working_set = 0;  // different bytes that it touches
  std::string_view crossing_text, traffic_text;
};
// ranks >= 1. Zero for a barrier, and in place for one rank.
Demand demand_of(Collective collective, int ranks, std::uint64_t bytes, bool in_place = false);

// At which sizes a bound looks at the curves, rising, as multiples of 64: what has to be measured for it.
// Below the smallest curves are lines through zero, for what a single line costs is in the synchronisation.
std::vector<std::uint64_t> sizes_that_matter(const Demand& demand, const Ceilings& caches);

struct Bound {
  double us = 0;        // 0: nothing needs to be done
  std::string formula;  // "exchange 0.11 us + 2m(p-1)/p crossing at 11.2 GB/s (L2)"
};
// The ceilings' number of ranks must be `ranks`. Never decreases with `bytes`.
Bound bound_of(Collective collective, int ranks, std::uint64_t bytes, const Ceilings& ceilings,
               bool in_place = false);
inline double bound_us(Collective collective, int ranks, std::uint64_t bytes, const Ceilings& ceilings) {
  return bound_of(collective, ranks, bytes, ceilings).us;
}

// "L2", "LLC" or "DRAM": where a working set of a rank fits, if the sizes are known.
std::string_view level_of(double working_set_bytes, const Ceilings& ceilings);

}  // namespace tutti::bench
