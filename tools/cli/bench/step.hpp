// `tutti bench --step`: training steps as frameworks make them, with each way to reduce the gradients.
// Knows the public interface of tutti alone.
#pragma once

#include <cstdint>

#include "bench/harness/shared_page.hpp"
#include "tools/cli/bench/options.hpp"
#include "tools/cli/bench/report.hpp"
#include "tools/cli/bench/workload.hpp"
#include "tutti/tutti.hpp"

namespace tutti::tool {

// Measures the variants of a step in turns; rank 0 reports. Every rank calls it; `page` is null where they share
// none. A thread of its own makes the gradients in backward order: arithmetic, writing, submission. The caller then
// waits for one tensor after the other in forward order, with arithmetic behind each. Returns the number of wrong
// elements over all ranks. Throws tutti::Error.
std::uint64_t run_steps(const BenchOptions& options, const CommGroup& group, const Workload& workload,
                        bench::SharedPage* page, int node_count, JsonLines& json);

}  // namespace tutti::tool
