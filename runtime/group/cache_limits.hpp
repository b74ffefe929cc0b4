// Sizes for collectives in shared memory, derived from the caches of the node. Knows caches; no schedule, no
// transport and no environment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "runtime/scheduler/group_context.hpp"
#include "topology/topology.hpp"

namespace tutti {

// The caches that limits depend on. A size of 0 is not known.
struct NodeCaches {
  std::uint64_t l1_bytes = 0, l2_bytes = 0;  // of one core
  std::uint64_t last_level_bytes = 0;        // of one last-level cache
  std::uint32_t last_level_cores = 1;        // that share it
  std::uint32_t last_level_count = 1;        // of them in the node
  bool operator==(const NodeCaches&) const = default;
};

// Of all cores, also those that this process may not use: ranks bound to different CPUs of one machine find
// the same. Where caches of a level differ, the smallest counts; a shared cache counts by core. A last level
// that is a first level counts as unknown, because the levels behind it were not described.
NodeCaches caches_of(const Topology& topology);

// Every number, for contracts: equal texts, equal limits.
std::string describe(const NodeCaches& caches);

struct CacheLimits {
  LoweredLimits lowered;
  std::size_t small_staging_bytes = GroupContext::Options().shape(BlockKind::small).staging_bytes;
  std::size_t bulk_staging_bytes = GroupContext::Options().shape(BlockKind::bulk).staging_bytes;
  bool operator==(const CacheLimits&) const = default;
};

// The limits of a group of `group_size` ranks of the node, by integers alone; all are powers of two. Limits
// of unknown caches keep the defaults of CacheLimits. Bounds exclude epochs that are all synchronisation, and
// control blocks of many MiB.
//
// Bulk staging: half of L2 for an epoch, 128 KiB to 1 MiB. Staged data must not leave the L2 of its writer
// while peers read it.
//
// Small staging: half of L1, so that staged data fits beside its input. At least twice announce_bytes, so that
// a vector that is not announced fits in one epoch. At most 32 KiB: every group has eight such areas.
//
// Pieces: half of L1, because a pass reads the computed piece again for each further store; the rest is for the
// sources. Streamed pieces: all of L1. They go through one private buffer, and the store buffers drain after
// each, so few are best. From 4 KiB to the room of the executor.
//
// Streaming: the first power of two at which the inputs and outputs of all ranks exceed the last-level caches in
// use, 1 MiB to 1 GiB. Ordinary stores would evict inputs before they are read, and be evicted before peers read
// them. Ranks are taken to fill one such cache after the other, a core each.
//
// announce_bytes does not depend on sizes of caches: it weighs one exchange of flag lines against one copy.
CacheLimits limits_for(const NodeCaches& caches, std::uint32_t group_size);

}  // namespace tutti
