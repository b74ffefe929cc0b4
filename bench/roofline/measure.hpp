// Measures the ceilings of a machine over the ranks of one node, all at work at the same time.
// Knows the shared page through which they meet, no library under test, no group and no topology.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "bench/harness/shared_page.hpp"
#include "bench/roofline/ceilings.hpp"

namespace tutti::bench {

// Every rank makes one at the same time and then takes the same; each has a CPU of its own. Rank r reads what
// rank r + 1 writes. Results are equal on all ranks but for the sizes of caches, which are left at 0.
// Throws std::system_error and std::bad_alloc; the other ranks then wait for ever.
class CeilingsMeter {
 public:
  using Progress = std::function<void(std::string_view what)>;

  // For movements of most_bytes at most; each measurement takes about so many seconds.
  // Memory: 3 * most_bytes for each rank, mapped by its neighbour, too. `ranks` must outlive it.
  CeilingsMeter(std::size_t most_bytes, double seconds, SharedPage& ranks);
  ~CeilingsMeter();
  CeilingsMeter(const CeilingsMeter&) = delete;
  CeilingsMeter& operator=(const CeilingsMeter&) = delete;

  // A line, an exchange, and every movement of each of these sizes, which rise and are multiples of 64.
  // `progress` is called with what comes next.
  Ceilings take(std::span<const std::uint64_t> sizes, const Progress& progress = {});
  std::size_t step_count(std::size_t size_count) const;  // calls of `progress`

 private:
  class Measuring;
  std::unique_ptr<Measuring> measuring_;
};

struct CeilingsPlan {
  std::size_t first_bytes = 1024, last_bytes = std::size_t{64} << 20U;  // multiples of 64
  std::size_t factor = 4;
  int round_count = 3;          // over all kinds and sizes; the median of the rounds' medians counts
  double budget_seconds = 0.1;  // for each kind and size, all rounds together, about
};

// As a CeilingsMeter takes them, under the same conditions. `progress` is called with what comes next and how
// many of all measurements are done.
Ceilings measure_ceilings(
    const CeilingsPlan& plan, SharedPage& ranks,
    const std::function<void(std::size_t done, std::size_t total, const std::string&)>& progress);

}  // namespace tutti::bench
