// Costs of messages and additions before any measurement: from the figures of the transports. Knows no
// schedule and no rule.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/types.hpp"
#include "runtime/selection/cost.hpp"
#include "runtime/selection/line_costs.hpp"

namespace tutti::tool {

struct StartingModel {
  CostModel model;
  std::string node_transport, network_transport;  // whose numbers they are
  bool shares_memory = false;                     // within a node
};

// `transport` (empty: automatic) carries all messages of a group on one node, and those between nodes of a
// group on several; memory carries the rest of those. `machine` has what cache lines cost. Errors: those of make_transport.
Result<StartingModel> starting_model(const Environment& environment, std::string_view transport,
                                     bool has_network, Dtype dtype, const MachineClass& machine);

}  // namespace tutti::tool
