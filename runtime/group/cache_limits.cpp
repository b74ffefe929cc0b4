// Reads the caches of a node and derives limits from them. Knows no rank but their number.
#include "runtime/group/cache_limits.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace tutti {
namespace {

constexpr std::uint64_t kKiB = 1024, kMiB = 1024 * kKiB;

std::uint32_t cores_in(const Topology& topology, const PuRange& pus) {
  std::uint32_t count = 0;
  for (const PuRange& core : topology.cores) {
    if (core.first < pus.end() && pus.first < core.end()) ++count;
  }
  return std::max(count, 1U);
}

// The smallest share of a level that a core has; 0 if not known.
std::uint64_t bytes_of_core(const Topology& topology, std::uint32_t level) {
  std::uint64_t least = 0;
  for (const Cache& cache : topology.caches) {
    if (cache.level != level || cache.bytes == 0) continue;
    const std::uint64_t share = cache.bytes / cores_in(topology, cache.pus);
    least = least == 0 ? share : std::min(least, share);
  }
  return least;
}

// The largest power of two that is at most `bytes`, within bounds; `otherwise` if `bytes` is not known.
std::size_t power_within(std::uint64_t bytes, std::uint64_t least, std::uint64_t most,
                         std::size_t otherwise) {
  return bytes == 0 ? otherwise : std::clamp(std::bit_floor(bytes), least, most);
}

std::uint64_t stream_bytes(const NodeCaches& caches, std::uint32_t group_size, std::uint64_t otherwise) {
  if (caches.last_level_bytes == 0) return otherwise;
  const std::uint64_t cores = std::max(caches.last_level_cores, 1U);
  const std::uint64_t used =
      std::clamp<std::uint64_t>((group_size + cores - 1) / cores, 1, std::max(caches.last_level_count, 1U));
  // Summaries come from outside: the product must not overflow.
  const std::uint64_t room = std::min(caches.last_level_bytes, ~std::uint64_t{0} / used) * used;
  std::uint64_t bytes = kMiB;
  while (bytes < kMiB * 1024 && 2 * bytes * group_size <= room) bytes *= 2;
  return bytes;
}

}  // namespace

NodeCaches caches_of(const Topology& topology) {
  NodeCaches caches;
  caches.l1_bytes = bytes_of_core(topology, 1);
  caches.l2_bytes = bytes_of_core(topology, 2);
  const std::uint32_t level = topology.last_level();
  if (level < 2) return caches;
  caches.last_level_count = 0;
  for (const Cache& cache : topology.caches) {
    if (cache.level != level) continue;
    ++caches.last_level_count;
    if (cache.bytes == 0 || (caches.last_level_bytes != 0 && caches.last_level_bytes <= cache.bytes))
      continue;
    caches.last_level_bytes = cache.bytes;
    caches.last_level_cores = cores_in(topology, cache.pus);
  }
  return caches;
}

std::string describe(const NodeCaches& caches) {
  return fmt::format("L1 {}, L2 {}, last level {} for {} cores, {} of them", caches.l1_bytes, caches.l2_bytes,
                     caches.last_level_bytes, caches.last_level_cores, caches.last_level_count);
}

CacheLimits limits_for(const NodeCaches& caches, std::uint32_t group_size) {
  CacheLimits limits;
  LoweredLimits& lowered = limits.lowered;
  limits.bulk_staging_bytes = power_within(caches.l2_bytes / 2, 128 * kKiB, kMiB, limits.bulk_staging_bytes);
  limits.small_staging_bytes =
      power_within(caches.l1_bytes / 2, 2 * lowered.announce_bytes, 32 * kKiB, limits.small_staging_bytes);
  lowered.piece_bytes =
      power_within(caches.l1_bytes / 2, 4 * kKiB, LoweredLimits::kMostPieceBytes, lowered.piece_bytes);
  lowered.streamed_piece_bytes =
      power_within(caches.l1_bytes, 4 * kKiB, LoweredLimits::kMostPieceBytes, lowered.streamed_piece_bytes);
  lowered.stream_bytes = stream_bytes(caches, group_size, lowered.stream_bytes);
  return limits;
}

}  // namespace tutti
