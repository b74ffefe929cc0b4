// Reads TUTTI_HELPERS, and counts idle cores. See helper_settings.hpp.
#include "runtime/group/helper_settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tutti {
namespace {

constexpr std::uint32_t kMostHelpers = 255;

// Threads of a core share what it can load and store, so they count once. CPUs that the topology does not have are
// cores of their own.
std::uint32_t count_cores(const Topology& topology, const std::vector<std::uint32_t>& cpus) {
  std::uint32_t unknown = 0;
  std::vector<std::uint32_t> positions;
  for (const std::uint32_t cpu : cpus) {
    if (const auto position = topology.find_pu(cpu)) {
      positions.push_back(*position);
    } else {
      ++unknown;
    }
  }
  const auto is_used = [&](const PuRange& core) {
    return std::any_of(positions.begin(), positions.end(),
                       [&](std::uint32_t pu) { return core.contains(pu); });
  };
  return unknown +
         static_cast<std::uint32_t>(std::count_if(topology.cores.begin(), topology.cores.end(), is_used));
}

bool share_a_cpu(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b) {
  return std::find_first_of(a.begin(), a.end(), b.begin(), b.end()) != a.end();
}

}  // namespace

Result<HelperSettings> read_helper_settings(const Environment& environment) {
  HelperSettings settings;
  const auto text = get_text(environment, "TUTTI_HELPERS");
  if (!text) return text.status();
  const std::string value = text->value_or("auto");
  if (value == "auto") return settings;
  std::uint32_t count = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), count);
  if (error != std::errc() || end != value.data() + value.size() || count > kMostHelpers)
    return invalid_argument(
        fmt::format("TUTTI_HELPERS='{}': expected auto or a number from 0 to {}", value, kMostHelpers));
  settings.count = count;
  return settings;
}

std::uint32_t choose_helper_count(const Topology& topology, const std::vector<std::uint32_t>& own,
                                  std::span<const std::vector<std::uint32_t>> neighbours) {
  const bool is_shared = std::any_of(neighbours.begin(), neighbours.end(),
                                     [&](const auto& cpus) { return share_a_cpu(own, cpus); });
  if (is_shared || own.size() >= topology.pu_count()) return 0;
  std::uint32_t cores = count_cores(topology, own);
  if (topology.cpu_quota_milli != 0)
    cores =
        std::min(cores, topology.cpu_quota_milli / 1000 / static_cast<std::uint32_t>(1 + neighbours.size()));
  return std::min(std::max(cores, 1U) - 1, kMostAutomaticHelpers);
}

}  // namespace tutti
