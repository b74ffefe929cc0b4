// Reads the list of CPUs and deals it out. See progress_cpus.hpp.
#include "topology/progress_cpus.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "topology/binding.hpp"

namespace tutti {

Result<ProgressCpuList> parse_progress_cpus(std::string_view text) {
  if (text == "auto") return ProgressCpuList{};
  auto parsed = parse_pin(text);
  if (!parsed || parsed->policy != PinPolicy::list) {
    return invalid_argument(fmt::format(
        "'{}' is neither auto nor a list of CPUs such as 0,1,12-15 or, of sets, 0-1;12-13", text));
  }
  return ProgressCpuList{std::move(parsed->list)};
}

Result<std::vector<std::vector<std::uint32_t>>> plan_progress_cpus(const Topology& topology,
                                                                   const ProgressCpuList& list,
                                                                   std::uint32_t local_size,
                                                                   std::uint32_t local_rank,
                                                                   std::uint32_t thread_count) {
  std::vector<std::vector<std::uint32_t>> planned(thread_count);
  const std::size_t length = list.entries.size();
  if (length == 0) return planned;
  std::size_t first = local_rank % length, share = 1;
  if (length >= local_size) {
    first = length * local_rank / local_size;
    share = length * (local_rank + 1) / local_size - first;
  }
  for (std::size_t thread = 0; thread < planned.size(); ++thread) {
    planned[thread] = list.entries[first + thread % share];
    for (const std::uint32_t cpu : planned[thread]) {
      const std::optional<std::uint32_t> position = topology.find_pu(cpu);
      if (!position)
        return invalid_argument(
            fmt::format("there is no CPU {}: {} has {}", cpu, topology.source, topology.pus.size()));
      if (!topology.pus[*position].is_allowed)
        return invalid_argument(fmt::format("CPU {} is not among those that this process may use", cpu));
    }
  }
  return planned;
}

}  // namespace tutti
