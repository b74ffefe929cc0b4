// A topology in a few lines for people.
// Knows the value only; the exact form for programs is its summary.
#include "tools/cli/topology_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <utility>
#include <vector>

#include "tools/cli/bench/report.hpp"

namespace tutti::tool {
namespace {

std::string counted(std::size_t count, std::string_view noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

// "4" if all ranges hold as many of what `count_in` counts, "2-4" if not.
template <class Count>
std::string span_text(const std::vector<PuRange>& ranges, Count count_in) {
  std::uint32_t least = UINT32_MAX, most = 0;
  for (const PuRange& range : ranges) {
    least = std::min(least, count_in(range));
    most = std::max(most, count_in(range));
  }
  return least >= most ? std::to_string(most) : fmt::format("{}-{}", least, most);
}

// "L3: 8 x 32 MiB for 8 PUs" for every kind of cache of every level.
std::string caches_line(const Topology& topology) {
  std::string text;
  const std::vector<Cache>& caches = topology.caches;
  for (std::size_t i = 0; i < caches.size();) {
    std::size_t same = i;
    while (same < caches.size() && caches[same].level == caches[i].level &&
           caches[same].bytes == caches[i].bytes && caches[same].pus.count == caches[i].pus.count)
      ++same;
    text += fmt::format("{}L{}: {} x {} for {}", text.empty() ? "" : "; ", caches[i].level, same - i,
                        caches[i].bytes == 0 ? "unknown size" : bytes_text(caches[i].bytes),
                        counted(caches[i].pus.count, "PU"));
    i = same;
  }
  return text.empty() ? "none known" : text;
}

std::string numa_line(const Topology& topology) {
  std::string text = counted(topology.numa_nodes.size(), "NUMA node");
  constexpr std::size_t kMost = 8;
  for (std::size_t i = 0; i < topology.numa_nodes.size() && i < kMost; ++i) {
    const NumaNode& node = topology.numa_nodes[i];
    text += fmt::format("{} {}: {}, {}", i == 0 ? ":" : ";", node.os_index, bytes_text(node.bytes),
                        counted(node.pus.count, "PU"));
  }
  if (topology.numa_nodes.size() > kMost) text += "; ...";
  return text;
}

// The limits of the cgroup; empty without limits.
std::string limits_line(const Topology& topology) {
  std::string text;
  if (topology.cpu_quota_milli > 0)
    text += fmt::format("time of {:.3g} CPUs", static_cast<double>(topology.cpu_quota_milli) / 1000);
  if (topology.memory_limit_bytes > 0)
    text += fmt::format("{}{} of memory", text.empty() ? "" : ", ", bytes_text(topology.memory_limit_bytes));
  return text.empty() ? "" : fmt::format("  limits of the cgroup: {}\n", text);
}

}  // namespace

std::string cpus_of(const Topology& topology, const PuRange& pus) {
  std::vector<std::uint32_t> numbers;
  for (std::uint32_t pu = pus.first; pu < pus.end(); ++pu) numbers.push_back(topology.pus[pu].os_index);
  return cpu_list_text(std::move(numbers));
}

std::string describe(const Topology& topology) {
  const auto cores_in = [&](const PuRange& socket) {
    std::uint32_t count = 0;
    for (const PuRange& core : topology.cores) count += socket.contains(core.first) ? 1U : 0U;
    return count;
  };
  std::vector<std::uint32_t> allowed;
  for (const std::uint32_t pu : topology.allowed_pus()) allowed.push_back(topology.pus[pu].os_index);
  const std::string detail = topology.detail.empty() ? "" : fmt::format(" ({})", topology.detail);
  return fmt::format(
      "topology: {}{}\n"
      "  {} x {} cores x {} PUs = {}\n"
      "  {}\n"
      "  caches: {}\n"
      "  allowed: {} of {}, CPUs {}\n"
      "{}",
      topology.source, detail, counted(topology.sockets.size(), "socket"),
      span_text(topology.sockets, cores_in),
      span_text(topology.cores, [](const PuRange& core) { return core.count; }),
      counted(topology.pus.size(), "PU"), numa_line(topology), caches_line(topology), allowed.size(),
      counted(topology.pus.size(), "PU"), cpu_list_text(allowed), limits_line(topology));
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(std::min(line.find(": ") + 2, line.size()));
  }
  return "unknown";
}

}  // namespace tutti::tool
