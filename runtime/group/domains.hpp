// Ranks that share a cache or a socket: the data that ranks exchange about it, and the hierarchy of any group
// that follows. Knows topologies as values; no environment, no exchange and no algorithm.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/schedule/hierarchy.hpp"
#include "runtime/selection/cost.hpp"
#include "topology/topology.hpp"

namespace tutti {

// TUTTI_HIERARCHY; equal on all ranks.
struct HierarchySetting {
  enum class Kind : std::uint8_t { automatic, off, sizes } kind = Kind::automatic;
  std::vector<std::uint32_t> sizes;  // of domains of neighbouring world ranks
};
// "auto", "off" or "2,2,3". Errors: invalid_argument, without the variable's name.
Result<HierarchySetting> parse_hierarchy(std::string_view text);

// Numbers of the parts of a node that hold all CPUs of a rank: equal on all ranks of a node. kSeveral: CPUs of several,
// or unknown.
struct RankDomains {
  static constexpr std::int32_t kSeveral = -1;
  std::int32_t cache = kSeveral;  // of the last level
  std::int32_t socket = kSeveral;
  std::int32_t core = kSeveral;  // or the second-level cache, where several cores share it
  std::int32_t numa = kSeveral;  // within a socket
};

// The domains of a rank that may run on these CPUs. A synthetic machine binds no rank: local rank i of n is
// taken to run on core i * cores / n.
RankDomains find_domains(const Topology& topology, std::span<const std::uint32_t> cpus,
                         std::uint32_t local_rank, std::uint32_t local_size);

// The domains of all ranks, known to all ranks of a world.
struct WorldDomains {
  HierarchySetting setting;
  std::vector<RankDomains> ranks;  // by world rank
  std::vector<int> nodes;          // by world rank
  std::vector<bool> is_crowded;    // by world rank: the ranks of its machine are oversubscribed

  // invalid_argument where the sizes do not add up to the world, naming variable, sum and expectation.
  Status check() const;
  bool spans_nodes(std::span<const int> world_ranks) const;
  // Whether any of them is on a machine with oversubscribed ranks.
  bool shares_cpus(std::span<const int> world_ranks) const;
  // Whether all of them know their sockets, and these differ.
  bool spans_sockets(std::span<const int> world_ranks) const;
  // The hierarchy of a group of these world ranks, equal on all members. Automatic: nodes, if the group spans
  // several. Else last-level caches, if at least two hold at least two members each; else NUMA domains or sockets by
  // the same rule; else flat. Levels above follow by the same rule, with the domains as members. Also flat if the
  // CPUs of any member spread over several.
  Hierarchy hierarchy_of(std::span<const int> world_ranks) const;
  // How far apart the group's members are, for prices.
  Places places_of(std::span<const int> world_ranks) const;

 private:
  Hierarchy levels_from(std::size_t first, std::span<const int> world_ranks) const;
};

}  // namespace tutti
