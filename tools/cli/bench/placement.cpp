// Binds the calling thread. Knows the topology for which CPUs share a core.
#include "tools/cli/bench/placement.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "topology/discovery.hpp"

namespace tutti::tool {

std::vector<int> allowed_cpus_by_core() {
  const Topology topology = discover_this_machine();
  std::vector<std::pair<std::uint32_t, std::uint32_t>> found;  // (how many of its core came before it, PU)
  for (const PuRange& core : topology.cores) {
    std::uint32_t seen = 0;
    for (std::uint32_t pu = core.first; pu < core.end(); ++pu) {
      if (topology.pus[pu].is_allowed) found.emplace_back(seen++, pu);
    }
  }
  std::sort(found.begin(), found.end());
  std::vector<int> cpus;
  cpus.reserve(found.size());
  for (const auto& [order, pu] : found) cpus.push_back(static_cast<int>(topology.pus[pu].os_index));
  return cpus;
}

Status bind_to_core(int local_rank, const std::vector<int>& cpus) {
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(cpus[static_cast<std::size_t>(local_rank) % cpus.size()], &mine);
  if (sched_setaffinity(0, sizeof mine, &mine) != 0)
    return unsupported(fmt::format("cannot bind to a CPU: {}", std::strerror(errno)));
  return {};
}

}  // namespace tutti::tool
