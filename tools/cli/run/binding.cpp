// Plans for `tutti run --bind`. Knows no process; see binding.hpp.
#include "tools/cli/run/binding.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "runtime/base/config.hpp"
#include "topology/affinity.hpp"
#include "topology/discovery.hpp"

namespace tutti {
namespace {

bool has(const Placement& placement, std::uint32_t pu) {
  return std::binary_search(placement.pus.begin(), placement.pus.end(), pu);
}

std::string map_text(const Topology& topology, const Placement& placement) {
  std::string text;
  for (const PuRange& socket : topology.sockets) {
    text += '[';
    for (const PuRange& core : topology.cores) {
      if (!socket.contains(core.first)) continue;
      if (text.back() != '[') text += '/';
      for (std::uint32_t pu = core.first; pu < core.end(); ++pu)
        text += has(placement, pu) ? 'B' : topology.pus[pu].is_allowed ? '.' : '~';
    }
    text += ']';
  }
  return text;
}

}  // namespace

Result<RunBinding> plan_bindings(const RunOptions& options) {
  const Environment environment = Environment::of_process();
  RunBinding binding;
  Result<PinRequest> request = options.bind.value_or(PinRequest{});
  const auto variable = environment.find("TUTTI_PIN");
  const bool is_asked_here = options.bind.has_value();
  if (!is_asked_here && variable) request = parse_pin(*variable);
  const auto order = get_enum(environment, "TUTTI_PIN_ORDER");
  if (!order) return order.status();
  const std::string asked =
      is_asked_here ? "--bind " + options.bind_text : fmt::format("TUTTI_PIN='{}'", variable.value_or("off"));
  if (!request) return request.status().with_context("TUTTI_PIN");
  request->order = options.bind_order.value_or(*order == "scatter" ? PinOrder::scatter : PinOrder::compact);
  binding.is_asked = is_asked_here || variable;
  binding.is_active = request->policy != PinPolicy::off;
  if (!binding.is_active && !options.reports_bindings) return binding;
  auto topology = discover_topology(environment, request->needs_devices() ? Devices::find : Devices::skip);
  if (!topology) return topology.status();
  binding.topology = *std::move(topology);
  if (binding.is_active && !binding.topology.is_this_machine)
    return invalid_argument(
        fmt::format("{}: nobody can be bound by {}, which is not this machine (TUTTI_TOPOLOGY, HWLOC_*)",
                    asked, binding.topology.source));
  auto placements =
      plan_placements(binding.topology, static_cast<std::uint32_t>(options.rank_count), *request);
  if (!placements) return placements.status().with_context(asked);
  binding.placements = *std::move(placements);
  return binding;
}

std::string describe_binding(const RunBinding& binding, int local_rank, int rank) {
  const Topology& topology = binding.topology;
  const Placement& placement = binding.placements[static_cast<std::size_t>(local_rank)];
  const std::string cpus = cpu_list_text(cpus_of(topology, placement));
  if (!binding.is_active) return fmt::format("rank {}: not bound, CPUs {}", rank, cpus);
  std::vector<std::uint32_t> sockets, nodes;
  for (std::uint32_t i = 0; i < topology.sockets.size(); ++i) {
    const PuRange& socket = topology.sockets[i];
    if (std::any_of(placement.pus.begin(), placement.pus.end(),
                    [&](std::uint32_t pu) { return socket.contains(pu); }))
      sockets.push_back(i);
  }
  for (const std::uint32_t node : placement.numa_nodes) nodes.push_back(topology.numa_nodes[node].os_index);
  const auto named = [](std::string_view what, const std::vector<std::uint32_t>& numbers) {
    return numbers.empty()
               ? std::string()
               : fmt::format(", {}{} {}", what, numbers.size() == 1 ? "" : "s", cpu_list_text(numbers));
  };
  std::string devices;
  if (placement.gpu) {
    const auto gpus = topology.devices_of(Device::Kind::gpu);
    const auto number = std::find(gpus.begin(), gpus.end(), *placement.gpu) - gpus.begin();
    devices = fmt::format(", GPU {} ({})", number, name_of(topology.devices[*placement.gpu]));
    if (placement.nic) devices += ", NIC " + name_of(topology.devices[*placement.nic]);
  }
  return fmt::format("rank {}: CPUs {}{}{}{}, {} thread{} {}", rank, cpus, named("socket", sockets),
                     named("NUMA node", nodes), devices, placement.thread_count,
                     placement.thread_count == 1 ? "" : "s", map_text(topology, placement));
}

Status apply_binding(const RunBinding& binding, int local_rank) {
  if (binding.is_asked) ::setenv("TUTTI_PIN", "off", 1);
  // A rank of an elastic job that was not planned for may run anywhere.
  if (!binding.is_active || static_cast<std::size_t>(local_rank) >= binding.placements.size()) return {};
  const Placement& placement = binding.placements[static_cast<std::size_t>(local_rank)];
  ::setenv("OMP_NUM_THREADS", std::to_string(placement.thread_count).c_str(), 0);
  return bind_this_thread(cpus_of(binding.topology, placement));
}

}  // namespace tutti
