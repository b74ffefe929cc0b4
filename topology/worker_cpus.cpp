// The list of the workers' CPUs: reading it and sharing it out.
#include "topology/worker_cpus.hpp"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "topology/binding.hpp"

namespace tutti {

Result<WorkerCpuList> parse_worker_cpus(std::string_view text) {
  if (text == "auto") return WorkerCpuList{};
  auto parsed = parse_pin(text);
  if (!parsed || parsed->policy != PinPolicy::list) {
    return invalid_argument(fmt::format(
        "'{}' is neither auto nor a list of CPUs such as 0,1,12-15 or, of sets, 0-1;12-13", text));
  }
  return WorkerCpuList{std::move(parsed->list)};
}

Result<std::vector<std::vector<std::uint32_t>>> plan_workers(const Topology& topology,
                                                             const WorkerCpuList& list,
                                                             std::uint32_t local_size,
                                                             std::uint32_t local_rank,
                                                             std::uint32_t worker_count) {
  std::vector<std::vector<std::uint32_t>> planned(worker_count);
  const std::size_t length = list.entries.size();
  if (length == 0) return planned;
  std::size_t first = local_rank % length, share = 1;
  if (length >= local_size) {
    first = length * local_rank / local_size;
    share = length * (local_rank + 1) / local_size - first;
  }
  for (std::size_t worker = 0; worker < planned.size(); ++worker) {
    planned[worker] = list.entries[first + worker % share];
    for (const std::uint32_t cpu : planned[worker]) {
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
