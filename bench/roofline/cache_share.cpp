// Divides caches among ranks. Knows the topology value only.
#include "bench/roofline/cache_share.hpp"

#include <algorithm>
#include <optional>
#include <vector>

namespace tutti::bench {

CacheShare share_caches(const Topology& topology, std::span<const int> cpus) {
  std::vector<std::uint32_t> pus;
  for (const int cpu : cpus) {
    const auto pu = cpu < 0 ? std::nullopt : topology.find_pu(static_cast<std::uint32_t>(cpu));
    if (pu) pus.push_back(*pu);
  }
  if (pus.size() != cpus.size() || pus.empty()) {
    const std::vector<std::uint32_t> allowed = topology.allowed_pus();
    if (allowed.empty()) return {};
    return {topology.l2_bytes(allowed[0]), topology.last_level_share_bytes(allowed[0])};
  }
  CacheShare least{UINT64_MAX, UINT64_MAX};
  for (const std::uint32_t pu : pus) {
    least.l2_bytes = std::min(least.l2_bytes, topology.l2_bytes(pu));
    const Cache* cache = topology.last_level_cache_of(pu);
    const auto sharing =
        cache == nullptr ? 0 : std::count_if(pus.begin(), pus.end(), [&](std::uint32_t other) {
          return cache->pus.contains(other);
        });
    least.last_level_bytes = std::min(
        least.last_level_bytes, cache == nullptr ? 0 : cache->bytes / static_cast<std::uint64_t>(sharing));
  }
  return least;
}

}  // namespace tutti::bench
