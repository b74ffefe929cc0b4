// The sizes of collectives in shared memory, as they follow from the caches of the node. Knows what a cache
// is; no schedule, no transport and no environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/scheduler/group_context.hpp"
#include "topology/topology.hpp"

namespace tutti {

// What the limits depend on. A size of 0 is not known.
struct NodeCaches {
  std::uint64_t l1_bytes = 0, l2_bytes = 0;  // of one core
  std::uint64_t last_level_bytes = 0;        // of one last-level cache
  std::uint32_t last_level_cores = 1;        // that share it
  std::uint32_t last_level_count = 1;        // of them in the node
  bool operator==(const NodeCaches&) const = default;
};

// Of all cores, whatever this process may use: ranks bound to different CPUs of one machine find the same.
// Where caches of a level differ the smallest counts, and one that several cores share counts by core. A last
// level that is a first level is taken for unknown: what is behind it was not described.
NodeCaches caches_of(const Topology& topology);

// Every number, for contracts: equal texts, equal limits.
std::string describe(const NodeCaches& caches);

struct CacheLimits {
  LoweredLimits lowered;
  std::size_t small_staging_bytes = GroupContext::Options().small_control_blocks.staging_bytes;
  std::size_t bulk_staging_bytes = GroupContext::Options().bulk_control_blocks.staging_bytes;
  bool operator==(const CacheLimits&) const = default;
};

// The limits of a group of `group_size` ranks of the node, by integers alone; all are powers of two. What a
// cache that is not known would decide stays as CacheLimits has it. Bounds keep an odd machine from epochs
// that are all synchronisation and from control blocks of many MiB.
//
// - Bulk staging, half of L2 for an epoch: what a rank fills is not to leave its L2 while the peers read it.
//   128 KiB to 1 MiB.
// - Small staging, half of L1: what is staged fits beside the input that it is made of. At least twice
//   announce_bytes, so that what is not announced finds its place in one epoch; at most 32 KiB, since every
//   group has eight such areas.
// - Pieces, half of L1: a pass reads the piece that it has just computed for each further store, and half is
//   left for the sources. Streamed pieces, all of L1: they pass through one private buffer, and after
//   each the store buffers drain, so the fewer the better. 4 KiB to what LoweredRun has room for.
// - Streaming, the first power of two at which the inputs and outputs of all ranks no longer fit in the
//   last-level caches that the ranks use: stores that stay there would push out inputs that are still to be
//   read, and be pushed out themselves before anybody reads them. Ranks are taken to fill one such cache
//   after the other, a core each. 1 MiB to 1 GiB.
//
// announce_bytes does not depend on sizes of caches: it weighs one exchange of lines against one copy.
CacheLimits limits_for(const NodeCaches& caches, std::uint32_t group_size);

}  // namespace tutti
