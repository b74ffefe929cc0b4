// How the ranks of a job find rank 0. Rank 0 listens, and the others learn its addresses from the launcher's
// store, the environment or the program's exchange. Knows no protocol of the connections that follow, and no
// transport.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/bootstrap.hpp"
#include "runtime/job/member_listener.hpp"
#include "runtime/net/network.hpp"

namespace tutti {

struct Meeting {
  LaunchInfo launch;
  std::string job;      // launch.job and the number of this world among those of the job
  std::string node;     // node_identity() and the launcher's own number of the node
  Listeners listeners;  // of rank 0, if the job may span nodes
  // On other ranks: returns addresses at which rank 0 may listen. Null for a job of one node. May resolve
  // names; an error may be temporary.
  std::function<Result<std::vector<SocketAddress>>()> find_root;
  // Opens listeners for further nodes. Null in a job of one node.
  std::function<Result<Listeners>()> open_listeners;
  // BootstrapOptions::open_worlds of all ranks, where they met by the exchange of the program.
  std::vector<std::string> open_worlds;
  // Of the successor of a group only: the listener of this process, and ControlOptions::watch_start.
  std::shared_ptr<MemberListener> listener;
  std::function<Status()> watch_start;
  // The reason why ranks of other nodes could not join; empty if they can, or if there are none.
  std::string closed_because;
};

// Finds rank, size and meeting point; rank 0 also listens. Blocks where the launcher or program needs all
// ranks for that. Errors: those of detect_launch(), invalid_argument for a TUTTI_IFACE that fits nothing,
// timeout, and those of the program's exchange.
Result<Meeting> arrange_meeting(const BootstrapOptions& options);

// The meeting of the members of a successor, on the one with this id. No communication.
struct Agreed;
Meeting meet_as_successor(const WorldKeys& keys, const WorldInfo& info, const Agreed& agreed,
                          std::int32_t own_id);

// Whether the launcher may add ranks on other nodes, even to a job that starts on one.
bool may_go_to_other_nodes(const Environment& environment, const LaunchInfo& launch);

// Opens listeners of a process that joins a group, as Meeting::open_listeners. Errors: invalid_argument for a TUTTI_IFACE
// or TUTTI_PORTS that cannot be used.
Result<std::function<Result<Listeners>()>> find_open_listeners(const Environment& environment);

// The ports at which rank 0 of a job may listen where no rank can tell the one it got. In order of
// preference; ports of the range if there is one.
std::vector<std::uint16_t> candidate_ports(std::string_view job, const std::optional<PortRange>& range = {});

}  // namespace tutti
