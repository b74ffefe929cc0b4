// Dealing out the ranks of a job over the CPUs of a topology.
#include "tools/cli/assumed_domains.hpp"

#include <algorithm>
#include <vector>

namespace tutti::tool {

WorldDomains assume_domains(const WorldSettings& settings, std::uint32_t rank_count, std::uint32_t per_node,
                            std::uint32_t cpu_count) {
  WorldDomains domains;
  domains.setting = settings.hierarchy;
  std::vector<std::uint32_t> cpus;
  for (const std::uint32_t pu : settings.topology.allowed_pus())
    cpus.push_back(settings.topology.pus[pu].os_index);
  for (std::uint32_t rank = 0; rank < rank_count; ++rank) {
    const std::uint32_t node = rank / per_node, on_node = std::min(per_node, rank_count - node * per_node);
    domains.nodes.push_back(static_cast<int>(node));
    domains.is_crowded.push_back(on_node > cpu_count);
    domains.ranks.push_back(find_domains(settings.topology, cpus, rank % per_node, on_node));
  }
  return domains;
}

}  // namespace tutti::tool
