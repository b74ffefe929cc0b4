// Bootstrap: makes a world from a launcher's variables, a unique id or the program's exchange. Its ranks can
// then exchange bytes. Knows no transport and no collective.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/job/control_channel.hpp"
#include "runtime/job/exchange.hpp"
#include "runtime/job/launchers/launch.hpp"

namespace tutti {

struct WorldInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;  // among the ranks of this node
  int local_size = 1;
  int node_count = 1;
  std::vector<int> node_of_rank;          // nodes are numbered 0, 1, ... in order of their lowest rank
  std::vector<int> machine_of_rank;       // likewise; several nodes may be one machine, whose CPUs they share
  std::vector<std::string> host_of_rank;  // for people
  std::vector<std::int32_t> pid_of_rank;  // in the pid namespace of that rank
  std::vector<bool> shares_pids;          // by rank: whether it is on this node and in our pid namespace
  std::string node_id;                    // equal on the ranks of a node and on no others
  // With several nodes: the network interface towards the others, and the reason for its choice.
  std::string interface;
  std::string interface_reason;
  std::string launcher;  // LaunchInfo::launcher
  std::string job;       // LaunchInfo::job
};

class MemberListener;

// Data by which members of a group of this world can make its successor (agreement.hpp).
struct WorldKeys {
  std::shared_ptr<MemberListener> listener;
  std::vector<MemberPlace> places;  // by rank
  std::string job;
  std::string secret;  // as proofs use it
  std::function<Result<Listeners>()> open_listeners;
  WireSecurity security = WireSecurity::off;  // of connections between nodes
};

struct World {
  WorldInfo info;
  std::optional<WireKey> data_key;  // of connections between nodes; none: the job has no secret
  WorldKeys keys;
  std::unique_ptr<ControlChannel> control;
};

struct BootstrapOptions {
  Environment environment =
      Environment::of_process();  // rank and size, if neither of the next two is given; TUTTI_NODE_ID
  std::string unique_id;          // of new_unique_id(), with rank and size
  int rank = -1;
  int size = -1;
  Exchange* exchange = nullptr;  // used during the call only
  std::string open_worlds;       // with an exchange: encode_open_worlds(), told to all ranks
  std::string build_id;
  std::chrono::milliseconds timeout{300000};
  // Of another host, after which it counts as dead, also when the start is over. None: the timeout.
  std::optional<std::chrono::milliseconds> silence{};
  std::function<void(const std::string&)> warn;
};

// Collective over the ranks of the job; blocks until all have arrived or the timeout. One environment or
// unique id may serve for any number of worlds, one after the other or nested. All ranks must make them in
// the same order. Threads may be ranks: each calls with the same unique id and its own rank. Errors:
// invalid_argument naming the variable or option; timeout naming the absent ranks; refused.
Result<World> bootstrap(const BootstrapOptions& options);
// The second half, for ranks that have already exchanged their locations (meeting.hpp).
struct Meeting;
Result<World> bootstrap(const BootstrapOptions& options, Meeting meeting);

// Identifies a node: processes with equal text share memory, unless their launcher tells them apart.
// TUTTI_NODE_ID, else boot id and network namespace. Host names need not be unique, and differ in containers
// that share memory.
std::string node_identity(const Environment& environment);

}  // namespace tutti
