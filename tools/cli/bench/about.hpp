// The facts about a run that its page shows beside the results. Knows options and the topology, no measurement.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/config.hpp"
#include "tools/cli/bench/options.hpp"
#include "tools/cli/json.hpp"

namespace tutti::tool {

// "command", "machine" (boxes_of, with the ranks of this node), "settings" and "versions" (pairs of texts).
// `words`: of the command line; `launcher`: who started the ranks, "" if this process did.
Json about_run(const BenchOptions& options, const Environment& environment,
               const std::vector<std::string>& words, const std::string& launcher);

}  // namespace tutti::tool
