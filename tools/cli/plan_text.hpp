// `tutti info --plan`: what each local rank would get, without running anything.
// Knows placements as values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "tools/cli/json.hpp"
#include "topology/binding.hpp"
#include "topology/topology.hpp"

namespace tutti::tool {

struct Plan {
  Topology topology;
  PinRequest request;
  std::vector<Placement> placements;  // by local rank
  // By local rank, those of each progress thread; empty where these run with their rank.
  std::vector<std::vector<std::vector<std::uint32_t>>> progress_cpus;
};

// `policy` and `order` as of --bind; empty: from TUTTI_PIN and TUTTI_PIN_ORDER, and "auto" where that is not
// set. No ranks: the topology alone. Errors: invalid_argument, unsupported.
Result<Plan> make_plan(const Environment& environment, std::uint32_t rank_count, const std::string& policy,
                       const std::string& order);

// A line about the request, and one for each rank, each ended by '\n'.
std::string describe(const Plan& plan);
Json to_json(const Plan& plan);

// The GPU or NIC for programs.
Json device_json(const Topology& topology, std::uint32_t device);

}  // namespace tutti::tool
