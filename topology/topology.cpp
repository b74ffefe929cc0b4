// Questions about a topology, and what makes one well-formed.
// Knows the value only.
#include "topology/topology.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace tutti {
namespace {

constexpr std::uint32_t kMaxLevel = 5;

// Cuts all PUs into groups: each goes with the smallest of `ranges` that has it, else alone.
std::vector<PuRange> partition(std::uint32_t pu_count, std::vector<PuRange> ranges) {
  std::stable_sort(ranges.begin(), ranges.end(),
                   [](const PuRange& a, const PuRange& b) { return a.count > b.count; });
  constexpr std::size_t kNone = SIZE_MAX;
  std::vector<std::size_t> owners(pu_count, kNone);
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    // The same PUs again (ordinary and fast memory) are the same group.
    if (i > 0 && ranges[i] == ranges[i - 1]) continue;
    for (std::uint32_t pu = ranges[i].first; pu < ranges[i].end(); ++pu) owners[pu] = i;
  }
  std::vector<PuRange> groups;
  for (std::uint32_t pu = 0; pu < pu_count; ++pu) {
    if (pu > 0 && owners[pu] != kNone && owners[pu] == owners[pu - 1]) {
      ++groups.back().count;
    } else {
      groups.push_back({pu, 1});
    }
  }
  return groups;
}

Status check_partition(const std::vector<PuRange>& ranges, std::uint32_t pu_count, std::string_view name) {
  std::uint32_t next = 0;
  for (const PuRange& range : ranges) {
    if (range.first != next || range.count == 0 || range.count > pu_count - next)
      return invalid_argument(fmt::format("the {} do not cover the PUs one after the other", name));
    next = range.end();
  }
  if (next == pu_count) return {};
  return invalid_argument(fmt::format("the {} cover {} of {} PUs", name, next, pu_count));
}

bool lies_within(const PuRange& range, std::uint32_t pu_count) {
  return range.first <= pu_count && range.count <= pu_count - range.first;
}

}  // namespace

std::optional<std::uint32_t> Topology::find_pu(std::uint32_t os_index) const {
  const auto found =
      std::find_if(pus.begin(), pus.end(), [&](const Pu& pu) { return pu.os_index == os_index; });
  if (found == pus.end()) return std::nullopt;
  return static_cast<std::uint32_t>(found - pus.begin());
}

std::vector<std::uint32_t> Topology::allowed_pus() const {
  std::vector<std::uint32_t> positions;
  for (std::uint32_t i = 0; i < pu_count(); ++i) {
    if (pus[i].is_allowed) positions.push_back(i);
  }
  return positions;
}

const Cache* Topology::smallest_shared_cache(std::uint32_t a, std::uint32_t b) const {
  // By level: a lower one lies inside a higher one, whatever their sizes. (An L2 may be larger than the share
  // of an L3, and sizes may be unknown.)
  for (const Cache& cache : caches) {
    if (cache.pus.contains(a) && cache.pus.contains(b)) return &cache;
  }
  return nullptr;
}

const Cache* Topology::cache_of(std::uint32_t pu, std::uint32_t level) const {
  for (const Cache& cache : caches) {
    if (cache.level == level && cache.pus.contains(pu)) return &cache;
  }
  return nullptr;
}

const Cache* Topology::last_level_cache_of(std::uint32_t pu) const {
  const Cache* last = nullptr;
  for (const Cache& cache : caches) {
    if (cache.pus.contains(pu)) last = &cache;
  }
  return last;
}

std::uint64_t Topology::l2_bytes(std::uint32_t pu) const {
  const Cache* cache = cache_of(pu, 2);
  return cache == nullptr ? 0 : cache->bytes;
}

std::uint64_t Topology::last_level_share_bytes(std::uint32_t pu) const {
  const Cache* cache = last_level_cache_of(pu);
  if (cache == nullptr) return 0;
  std::uint64_t sharing = 0;
  for (const PuRange& core : cores) {
    if (core.first < cache->pus.end() && cache->pus.first < core.end()) ++sharing;
  }
  return cache->bytes / std::max<std::uint64_t>(1, sharing);
}

std::vector<PuRange> Topology::groups_by_cache(std::uint32_t level) const {
  std::vector<PuRange> ranges;
  for (const Cache& cache : caches) {
    if (cache.level == level) ranges.push_back(cache.pus);
  }
  return partition(pu_count(), ranges);
}

std::vector<PuRange> Topology::groups_by_numa() const {
  std::vector<PuRange> ranges;
  for (const NumaNode& node : numa_nodes) ranges.push_back(node.pus);
  return partition(pu_count(), ranges);
}

std::vector<std::uint32_t> Topology::devices_of(Device::Kind kind) const {
  std::vector<std::uint32_t> positions;
  for (std::uint32_t i = 0; i < devices.size(); ++i) {
    if (devices[i].kind == kind) positions.push_back(i);
  }
  return positions;
}

std::uint32_t Topology::last_level() const { return caches.empty() ? 0 : caches.back().level; }

// Many decisions: one for each invariant.
Status Topology::check() const {
  if (pus.empty() || pus.size() > kMaxPus)
    return invalid_argument(fmt::format("{} PUs; 1 to {} are possible", pus.size(), kMaxPus));
  std::set<std::uint32_t> numbers;
  for (const Pu& pu : pus) {
    if (!numbers.insert(pu.os_index).second)
      return invalid_argument(fmt::format("two PUs have the number {}", pu.os_index));
  }
  TUTTI_RETURN_IF_ERROR(check_partition(cores, pu_count(), "cores"));
  TUTTI_RETURN_IF_ERROR(check_partition(sockets, pu_count(), "sockets"));
  for (const NumaNode& node : numa_nodes) {
    if (!lies_within(node.pus, pu_count()))
      return invalid_argument(fmt::format("NUMA node {} has PUs that do not exist", node.os_index));
  }
  for (const Device& device : devices) {
    if (!lies_within(device.pus, pu_count()) || device.pus.count == 0)
      return invalid_argument(fmt::format("the device {} is next to PUs that do not exist", device.address));
  }
  const Cache* previous = nullptr;
  for (const Cache& cache : caches) {
    if (cache.level < 1 || cache.level > kMaxLevel)
      return invalid_argument(fmt::format("a cache of level {}", cache.level));
    if (!lies_within(cache.pus, pu_count()) || cache.pus.count == 0)
      return invalid_argument(fmt::format("an L{} cache of PUs that do not exist", cache.level));
    if (previous != nullptr && (previous->level > cache.level ||
                                (previous->level == cache.level && previous->pus.end() > cache.pus.first)))
      return invalid_argument(fmt::format("the L{} caches overlap or are out of order", cache.level));
    previous = &cache;
  }
  return {};
}

}  // namespace tutti
