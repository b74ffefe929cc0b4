// Binds the calling thread. Knows the topology for which CPUs share a core.
#include "tools/cli/bench/placement.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "topology/discovery.hpp"

namespace tutti::tool {
namespace {

constexpr std::array<std::string_view, 4> kLevelNames = {"core", "llc", "numa", "socket"};

std::vector<PuRange> ranges_of_level(MapLevel level, const Topology& topology) {
  switch (level) {
    case MapLevel::core:
      return {{0, topology.pu_count()}};
    case MapLevel::llc:
      return topology.groups_by_cache(topology.last_level());
    case MapLevel::numa:
      return topology.groups_by_numa();
    case MapLevel::socket:
      return topology.groups_by_socket();
  }
  return {};
}

}  // namespace

std::optional<MapLevel> parse_map_level(std::string_view name) {
  const auto found = std::find(kLevelNames.begin(), kLevelNames.end(), name);
  if (found == kLevelNames.end()) return std::nullopt;
  return static_cast<MapLevel>(found - kLevelNames.begin());
}

std::string_view to_string(MapLevel level) { return kLevelNames[static_cast<std::size_t>(level)]; }

std::vector<int> allowed_cpus_by(MapLevel level, const Topology& topology, std::size_t* part_count) {
  // By: how many allowed threads of its core come before it; how many such CPUs of its part; the part.
  std::vector<std::array<std::uint32_t, 4>> found;
  std::size_t parts = 0;
  for (const PuRange& part : ranges_of_level(level, topology)) {
    std::vector<std::uint32_t> cores_so_far;  // by thread of a core
    for (const PuRange& core : topology.cores) {
      std::uint32_t thread = 0;
      for (std::uint32_t pu = core.first; pu < core.end(); ++pu) {
        if (!topology.pus[pu].is_allowed || !part.contains(pu)) continue;
        if (thread == cores_so_far.size()) cores_so_far.push_back(0);
        found.push_back({thread, cores_so_far[thread]++, part.first, pu});
        ++thread;
      }
    }
    if (!cores_so_far.empty()) ++parts;
  }
  if (part_count != nullptr) *part_count = parts;
  std::sort(found.begin(), found.end());
  std::vector<int> cpus;
  cpus.reserve(found.size());
  for (const auto& entry : found) cpus.push_back(static_cast<int>(topology.pus[entry[3]].os_index));
  return cpus;
}

std::string map_text(MapLevel level, const Topology& topology) {
  constexpr std::array<std::string_view, 4> kParts = {"", "last-level cache", "NUMA node", "socket"};
  std::size_t parts = 0;
  allowed_cpus_by(level, topology, &parts);
  if (level == MapLevel::core || parts < 2)
    return fmt::format(
        "bound to neighbouring cores{}",
        level == MapLevel::core ? "" : fmt::format(" of one {}", kParts[static_cast<std::size_t>(level)]));
  return fmt::format("bound to one of {} {}s after the other", parts,
                     kParts[static_cast<std::size_t>(level)]);
}

std::vector<int> allowed_cpus_by(MapLevel level) { return allowed_cpus_by(level, discover_this_machine()); }

Status bind_to_core(int local_rank, const std::vector<int>& cpus) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(cpus[static_cast<std::size_t>(local_rank) % cpus.size()], &mine);
  if (sched_setaffinity(0, sizeof mine, &mine) != 0)
    return unsupported(fmt::format("cannot bind to a CPU: {}", std::strerror(errno)));
  return {};
}

}  // namespace tutti::tool
