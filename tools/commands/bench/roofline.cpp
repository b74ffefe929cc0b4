// Runs the measurement of ceilings inside a benchmark's ranks and adds the sizes of their caches.
// Knows no collective.
#include "tools/commands/bench/roofline.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <vector>

#include "bench/roofline/cache_share.hpp"
#include "bench/roofline/measure.hpp"
#include "tools/commands/bench/report.hpp"
#include "topology/discovery.hpp"

namespace tutti::tool {

bench::Ceilings find_ceilings(const BenchOptions& options, bench::SharedPage& ranks) {
  bench::CeilingsPlan plan;
  plan.budget_seconds = std::min(plan.budget_seconds, options.loop.budget_seconds);
  if (options.is_roofline) {
    plan.first_bytes = options.first_bytes;
    plan.last_bytes = options.last_bytes;
    plan.factor = options.factor;
    plan.round_count = options.round_count;
    plan.budget_seconds = options.loop.budget_seconds;
  } else if (options.workload.empty()) {
    // No bound looks at a curve beyond the size of the call.
    while (plan.last_bytes > plan.first_bytes && plan.last_bytes / plan.factor >= options.last_bytes)
      plan.last_bytes /= plan.factor;
  }
  Progress progress;
  bench::Ceilings ceilings =
      bench::measure_ceilings(plan, ranks, [&](std::size_t done, std::size_t total, const std::string& what) {
        if (ranks.rank() == 0) progress.show(fmt::format("[{}/{}] ceilings: {}", done, total, what));
      });

  const double cpu = options.binding == Binding::core ? ::sched_getcpu() : -1;
  std::vector<double> all(static_cast<std::size_t>(ranks.rank_count()));
  ranks.gather({&cpu, 1}, all);
  const std::vector<int> cpus(all.begin(), all.end());
  const bench::CacheShare share = bench::share_caches(discover_this_machine(), cpus);
  ceilings.l2_bytes = share.l2_bytes;
  ceilings.last_level_bytes = share.last_level_bytes;
  return ceilings;
}

}  // namespace tutti::tool
