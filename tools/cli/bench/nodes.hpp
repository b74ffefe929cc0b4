// Nodes on this machine for a benchmark: a bed of network namespaces, made by tools/cli/testbed.py.
// Knows that script's command line and what it tells programs in a bed, no library and no measurement.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti::tool {

// "2" or "2x4": nodes, and ranks on each. nullopt: neither.
struct NodePlan {
  int node_count = 0;
  int ranks_per_node = 1;
};
std::optional<NodePlan> parse_nodes(std::string_view text);

// The bed that this process runs in.
struct Bed {
  std::string program;                 // the script; called with a host and words it acts as ssh
  std::string network;                 // "10.77.0.0/24"
  std::string hub;                     // the address of whoever starts programs
  std::vector<std::string> addresses;  // by node
  std::vector<std::string> namespaces;

  static std::optional<Bed> current();
  // The words in front of a command that run it once for each rank, in the rank's node and as `tutti run`
  // would; they also set the environment that makes the ranks one job.
  std::vector<std::string> rank_words(int ranks_per_node) const;
  std::vector<std::pair<std::string, std::string>> job_environment() const;
};

// Becomes the script, which makes a bed and runs `command` in its hub. Returns only if that fails.
Status enter_bed(const NodePlan& plan, const std::string& rate, const std::vector<std::string>& command);

}  // namespace tutti::tool
