// One rank of a benchmark: measures every row of what the options ask for; rank 0 reports.
// Knows no launcher.
#pragma once

#include <vector>

#include "tools/cli/bench/options.hpp"
#include "tutti/tutti.hpp"

namespace tutti::tool {

// Runs in every rank of `group`. `cpus`: those that this rank was allowed when it started.
// Returns the exit status of this rank (1 at rank 0 if anything was wrong). Throws tutti::Error.
int run_bench_rank(const BenchOptions& options, const CommGroup& group, const std::vector<int>& cpus);

// Obeys the line protocol of bench/peers on standard input, for a comparison. Ranks of one node only.
int serve_bench_rank(const BenchOptions& options, const CommGroup& group);

}  // namespace tutti::tool
