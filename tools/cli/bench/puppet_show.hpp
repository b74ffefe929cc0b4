// `tutti bench --puppet`: one rank among many that one thread plays, on two CPUs. Starts no job.
#pragma once

#include "runtime/base/config.hpp"
#include "tools/cli/bench/options.hpp"

namespace tutti::tool {

// Prints the table; the exit status. Throws Error where the calls cannot be played.
int run_puppet_show(const BenchOptions& options, const Environment& environment);

}  // namespace tutti::tool
