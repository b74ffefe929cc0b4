// Measures the ceilings of a machine over the ranks of one node, all at work at the same time.
// Knows the shared page through which they meet, no library under test, no group and no topology.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

#include "bench/harness/shared_page.hpp"
#include "bench/roofline/ceilings.hpp"

namespace tutti::bench {

struct CeilingsPlan {
  std::size_t first_bytes = 1024, last_bytes = std::size_t{64} << 20U;  // multiples of 64
  std::size_t factor = 4;
  int round_count = 3;          // over all kinds and sizes; the median of the rounds' medians counts
  double budget_seconds = 0.1;  // for each kind and size, all rounds together, about
};

// Every rank calls it with an equal plan; each has a CPU of its own. Rank r reads what rank r + 1 writes. The
// result is equal on all ranks but for the sizes of caches, which are left at 0. `progress` is called with
// what comes next and how many of all measurements are done. Memory: 3 * last_bytes for each rank.
// Throws std::system_error and std::bad_alloc; the other ranks then wait for ever.
Ceilings measure_ceilings(
    const CeilingsPlan& plan, SharedPage& ranks,
    const std::function<void(std::size_t done, std::size_t total, const std::string&)>& progress);

}  // namespace tutti::bench
