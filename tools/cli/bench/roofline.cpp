// Runs the measurement of ceilings inside a benchmark's ranks and adds the sizes of their caches.
#include "tools/cli/bench/roofline.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <vector>

#include "bench/roofline/cache_share.hpp"
#include "tools/cli/bench/report.hpp"
#include "topology/discovery.hpp"

namespace tutti::tool {

namespace {

void add_caches(const BenchOptions& options, bench::SharedPage& ranks, bench::Ceilings& ceilings) {
  const double cpu = options.binding == Binding::core ? ::sched_getcpu() : -1;
  std::vector<double> all(static_cast<std::size_t>(ranks.rank_count()));
  ranks.gather({&cpu, 1}, all);
  const std::vector<int> cpus(all.begin(), all.end());
  const bench::CacheShare share = bench::share_caches(discover_this_machine(), cpus);
  ceilings.l2_bytes = share.l2_bytes;
  ceilings.last_level_bytes = share.last_level_bytes;
}

// The largest movement whose time a bound of such calls asks for.
std::size_t most_measured(const BenchOptions& options, std::size_t most_bytes, int ranks) {
  const bench::Demand demand = bench::demand_of(options.collective, ranks, most_bytes, options.in_place);
  const std::vector<std::uint64_t> sizes = bench::sizes_that_matter(demand, {});
  return sizes.empty() ? 64 : sizes.back();
}

}  // namespace

bench::Ceilings find_ceilings(const BenchOptions& options, bench::SharedPage& ranks) {
  bench::CeilingsPlan plan;
  plan.first_bytes = options.first_bytes;
  plan.last_bytes = options.last_bytes;
  plan.factor = options.factor;
  plan.round_count = options.round_count;
  plan.budget_seconds = options.loop.budget_seconds;
  Progress progress;
  bench::Ceilings ceilings =
      bench::measure_ceilings(plan, ranks, [&](std::size_t done, std::size_t total, const std::string& what) {
        if (ranks.rank() == 0)
          progress.show(static_cast<double>(done) / static_cast<double>(total), "ceilings: " + what);
      });
  add_caches(options, ranks, ceilings);
  return ceilings;
}

BoundMeter::BoundMeter(const BenchOptions& options, std::size_t most_bytes, bench::SharedPage& ranks)
    : in_place_(options.in_place),
      meter_(
          most_measured(options, most_bytes, ranks.rank_count()),
          std::min(bench::CeilingsPlan{}.budget_seconds, options.loop.budget_seconds) / options.round_count,
          ranks) {
  add_caches(options, ranks, caches_);
}

bench::Ceilings BoundMeter::take_ceilings(std::span<const std::uint64_t> sizes) {
  bench::Ceilings ceilings = meter_.take(sizes);
  ceilings.l2_bytes = caches_.l2_bytes;
  ceilings.last_level_bytes = caches_.last_level_bytes;
  return ceilings;
}

bench::Bound BoundMeter::take(const bench::Shape& shape) {
  const bench::Demand demand = bench::demand_of(shape.collective, shape.ranks, shape.bytes(), in_place_);
  return bench::bound_of(shape.collective, shape.ranks, shape.bytes(),
                         take_ceilings(bench::sizes_that_matter(demand, caches_)), in_place_);
}

}  // namespace tutti::tool
