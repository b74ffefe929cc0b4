// A comparison with other libraries, size by size in turns. Knows their programs' line protocol only.
#pragma once

#include "tools/cli/bench/options.hpp"

namespace tutti::tool {

// Starts tutti's ranks and the peers' programs (bench/peers/README.md), asks each in turn, prints the ratios.
// Returns the exit status.
int run_comparison(const BenchOptions& options);

}  // namespace tutti::tool
