// Which ranks share a cache or a socket: what each rank tells the others about itself, and the hierarchy of
// any group of them that follows. Knows topologies as values; no environment, no exchange and no algorithm.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/schedule/hierarchy.hpp"
#include "topology/topology.hpp"

namespace tutti {

// TUTTI_HIERARCHY; equal on all ranks.
struct HierarchySetting {
  enum class Kind : std::uint8_t { automatic, off, sizes } kind = Kind::automatic;
  std::vector<std::uint32_t> sizes;  // of domains of neighbouring world ranks
};
// "auto", "off" or "2,2,3". Errors: invalid_argument, without the variable's name.
Result<HierarchySetting> parse_hierarchy(std::string_view text);

// Numbers of what holds all CPUs of a rank: the same on all ranks of a node. kSeveral: no one cache (socket)
// does, or none is known.
struct RankDomains {
  static constexpr std::int32_t kSeveral = -1;
  std::int32_t cache = kSeveral;  // of the last level
  std::int32_t socket = kSeveral;
};

// Of a rank that may run on these CPUs. A machine that is made up binds nobody: there local rank i of n is
// taken to sit on core i * cores / n.
RankDomains find_domains(const Topology& topology, std::span<const std::uint32_t> cpus,
                         std::uint32_t local_rank, std::uint32_t local_size);

// What all ranks of a world know of all.
struct WorldDomains {
  HierarchySetting setting;
  std::vector<RankDomains> ranks;  // by world rank
  std::vector<int> nodes;          // by world rank
  std::vector<bool> is_crowded;    // by world rank: the ranks of its machine outnumber the CPUs they may use

  // invalid_argument where the sizes do not add up to the world, naming variable, sum and expectation.
  Status check() const;
  bool spans_nodes(std::span<const int> world_ranks) const;
  // Is any of them on a machine where ranks outnumber CPUs?
  bool shares_cpus(std::span<const int> world_ranks) const;
  // Of a group of these world ranks, equal on all its members. Automatic: nodes where the group spans
  // several; else last-level caches where at least two hold at least two members each, else sockets where
  // they do, else flat; flat, too, if the CPUs of any member spread over several.
  Hierarchy hierarchy_of(std::span<const int> world_ranks) const;
};

}  // namespace tutti
