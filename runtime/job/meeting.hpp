// Where the ranks of a job meet before they know each other: what rank 0 listens at and how the others learn
// it, by the launcher's store, an address in the environment, or the program's exchange.
// Knows no protocol of the connections that follow, and no transport.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/bootstrap.hpp"
#include "runtime/net/network.hpp"

namespace tutti {

struct Meeting {
  LaunchInfo launch;
  std::string job;      // launch.job and the number of this world among those of the job
  std::string node;     // node_identity() and the launcher's own number of the node
  Listeners listeners;  // rank 0's, if it may have ranks on other nodes
  // The others: where rank 0 may listen. Null for a job of one node. May ask name servers; an error may
  // pass.
  std::function<Result<std::vector<SocketAddress>>()> find_root;
  // The others: listens for further nodes. Null where find_root is.
  std::function<Result<Listeners>()> open_listeners;
  // BootstrapOptions::open_worlds of all ranks, where they met by the exchange of the program.
  std::vector<std::string> open_worlds;
  // Why ranks of other nodes could not join; empty if they can, or if there are none.
  std::string closed_because;
};

// Finds out who we are, and as rank 0 listens. Blocks where launcher or program need all ranks for it.
// Errors: those of detect_launch(), invalid_argument for a TUTTI_IFACE that fits nothing, timeout, and those
// of the program's exchange.
Result<Meeting> arrange_meeting(const BootstrapOptions& options);

// The ports at which rank 0 of a job may listen if nobody can tell which it got, in order of preference;
// those of the range if there is one.
std::vector<std::uint16_t> candidate_ports(std::string_view job, const std::optional<PortRange>& range = {});

}  // namespace tutti
