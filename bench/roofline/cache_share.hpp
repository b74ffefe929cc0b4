// How much cache the ranks of a node have each. Knows the topology value only.
#pragma once

#include <cstdint>
#include <span>

#include "topology/topology.hpp"

namespace tutti::bench {

struct CacheShare {
  std::uint64_t l2_bytes = 0;          // of the rank that has least; 0: not known
  std::uint64_t last_level_bytes = 0;  // the same, divided among the ranks below one cache
};

// `cpus`: the system's CPU number of every rank; negative where a rank is not bound. If any is negative or
// not in the topology, the first allowed PU stands for all, and a core's share of the last level for a
// rank's.
CacheShare share_caches(const Topology& topology, std::span<const int> cpus);

}  // namespace tutti::bench
