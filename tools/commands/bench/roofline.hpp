// The ceilings of this machine under the ranks of a benchmark. Knows the measurement and where ranks run, no
// collective.
#pragma once

#include "bench/harness/shared_page.hpp"
#include "bench/roofline/ceilings.hpp"
#include "tools/commands/bench/options.hpp"

namespace tutti::tool {

// Every rank calls it; the result is equal on all. Rank 0 shows progress. Takes about ten seconds with
// defaults. Throws std::system_error where the ranks may not reach each other's memory.
bench::Ceilings find_ceilings(const BenchOptions& options, bench::SharedPage& ranks);

}  // namespace tutti::tool
