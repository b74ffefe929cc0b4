// The ceilings of this machine under the ranks of a benchmark, and what they leave a call. Knows how both are
// measured and where ranks run, and starts no call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "bench/harness/shared_page.hpp"
#include "bench/roofline/bound.hpp"
#include "bench/roofline/ceilings.hpp"
#include "bench/roofline/measure.hpp"
#include "tools/cli/bench/options.hpp"

namespace tutti::tool {

// Every rank calls it; the result is equal on all. Rank 0 shows progress. Takes about ten seconds with
// defaults. Throws std::system_error where the ranks may not reach each other's memory.
bench::Ceilings find_ceilings(const BenchOptions& options, bench::SharedPage& ranks);

// Bounds of calls from ceilings that are measured anew for each, so that a bound and its call belong to the
// same moment. Two virtual CPUs may share a core in one second and not in the next.
class BoundMeter {
 public:
  // Every rank makes one at the same time, for calls of `most_bytes` at most; errors as above.
  BoundMeter(const BenchOptions& options, std::size_t most_bytes, bench::SharedPage& ranks);

  // The caches, a line and an exchange; no curves. Every rank calls it.
  bench::Ceilings take_summary() { return take_ceilings({}); }
  // Every rank calls it; takes some tenths of a second, below 1 MiB.
  bench::Bound take(const bench::Shape& shape);

 private:
  bench::Ceilings take_ceilings(std::span<const std::uint64_t> sizes);

  bool in_place_;
  bench::Ceilings caches_;  // nothing else in it
  bench::CeilingsMeter meter_;
};

}  // namespace tutti::tool
