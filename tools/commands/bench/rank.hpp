// One rank of a benchmark: measures every row of what the options ask for; rank 0 reports.
// Knows no launcher.
#pragma once

#include "tools/commands/bench/options.hpp"
#include "tutti/tutti.hpp"

namespace tutti::tool {

// Runs in every rank of `group`. `cpu_count`: the CPUs that the ranks of this node may use together.
// Returns the exit status of this rank (1 at rank 0 if anything was wrong). Throws tutti::Error.
int run_bench_rank(const BenchOptions& options, const CommGroup& group, int cpu_count);

// Obeys the line protocol of bench/peers on standard input, for a comparison. Ranks of one node only.
int serve_bench_rank(const BenchOptions& options, const CommGroup& group);

}  // namespace tutti::tool
