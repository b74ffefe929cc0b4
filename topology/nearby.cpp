// Scores of nearness; see nearby.hpp. Knows values only.
#include "topology/nearby.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace tutti::detail {

std::vector<std::uint32_t> numa_nodes_of(const Topology& topology, const std::vector<std::uint32_t>& pus) {
  std::vector<std::uint32_t> nodes;
  for (const PuRange& group : topology.groups_by_numa()) {
    if (std::none_of(pus.begin(), pus.end(), [&](std::uint32_t pu) { return group.contains(pu); })) continue;
    // Of several nodes with the same PUs the first is the ordinary memory.
    std::optional<std::uint32_t> best;
    for (std::uint32_t i = 0; i < topology.numa_nodes.size(); ++i) {
      const PuRange& there = topology.numa_nodes[i].pus;
      if (there.contains(group.first) && (!best || there.count < topology.numa_nodes[*best].pus.count))
        best = i;
    }
    if (best && std::find(nodes.begin(), nodes.end(), *best) == nodes.end()) nodes.push_back(*best);
  }
  return nodes;
}

namespace {

std::size_t common_bridges(const Device& a, const Device& b) {
  std::size_t count = 0;
  while (count < std::min(a.bridges.size(), b.bridges.size()) && a.bridges[count] == b.bridges[count])
    ++count;
  return count;
}

}  // namespace

std::optional<std::uint32_t> nearest_device(const Topology& topology,
                                            const std::vector<std::uint32_t>& candidates,
                                            const Placement& placement, std::vector<std::uint32_t>* loads) {
  using Score = std::array<std::int64_t, 4>;
  std::optional<std::pair<Score, std::uint32_t>> best;
  for (const std::uint32_t index : candidates) {
    const Device& device = topology.devices[index];
    const auto overlap = std::count_if(placement.pus.begin(), placement.pus.end(),
                                       [&](std::uint32_t pu) { return device.pus.contains(pu); });
    const std::size_t common = placement.gpu ? common_bridges(device, topology.devices[*placement.gpu]) : 0;
    const Score score = {static_cast<std::int64_t>(common), overlap, -std::int64_t{device.pus.count},
                         -std::int64_t{(*loads)[index]}};
    if (!best || score > best->first) best = {score, index};
  }
  if (!best) return std::nullopt;
  ++(*loads)[best->second];
  return best->second;
}

std::vector<std::uint32_t> usable_nics(const Topology& topology) {
  std::vector<std::uint32_t> nics = topology.devices_of(Device::Kind::nic);
  std::uint32_t best = 0;
  for (const std::uint32_t nic : nics) best = std::max(best, topology.devices[nic].preference);
  std::erase_if(nics, [&](std::uint32_t nic) { return topology.devices[nic].preference < best; });
  return nics;
}

}  // namespace tutti::detail
