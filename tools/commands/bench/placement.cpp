// Binds the calling thread. Knows /sys for which CPUs share a core.
#include "tools/commands/bench/placement.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <utility>

namespace tutti::tool {

std::vector<int> allowed_cpus_by_core() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return {};
  std::vector<std::pair<int, int>> found;  // (how many of its core came before it, cpu)
  std::map<std::string, int> seen_of_core;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &allowed)) continue;
    std::string siblings = fmt::format("cpu{}", cpu);  // where /sys says nothing each CPU is a core
    std::ifstream(fmt::format("/sys/devices/system/cpu/cpu{}/topology/thread_siblings_list", cpu)) >>
        siblings;
    found.emplace_back(seen_of_core[siblings]++, cpu);
  }
  std::sort(found.begin(), found.end());
  std::vector<int> cpus;
  cpus.reserve(found.size());
  for (const auto& [order, cpu] : found) cpus.push_back(cpu);
  return cpus;
}

Status bind_to_core(int local_rank, const std::vector<int>& cpus) {
  if (static_cast<std::size_t>(local_rank) >= cpus.size())
    return unsupported(
        fmt::format("rank {} of this node finds {} allowed CPUs only", local_rank, cpus.size()));
  cpu_set_t mine;
  CPU_ZERO(&mine);
  CPU_SET(cpus[static_cast<std::size_t>(local_rank)], &mine);
  if (sched_setaffinity(0, sizeof mine, &mine) != 0)
    return unsupported(fmt::format("cannot bind to a CPU: {}", std::strerror(errno)));
  return {};
}

}  // namespace tutti::tool
