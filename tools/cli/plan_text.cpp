// Plans for people and programs. Knows placements as values; see plan_text.hpp.
#include "tools/cli/plan_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/group/progress_settings.hpp"
#include "tools/cli/json.hpp"
#include "tools/cli/topology_text.hpp"
#include "topology/discovery.hpp"

namespace tutti::tool {
namespace {

std::string numa_text(const Topology& topology, const Placement& placement) {
  std::vector<std::uint32_t> numbers;
  for (const std::uint32_t node : placement.numa_nodes) numbers.push_back(topology.numa_nodes[node].os_index);
  return numbers.empty() ? "-" : cpu_list_text(std::move(numbers));
}

std::uint32_t core_count(const Topology& topology, const Placement& placement) {
  std::uint32_t count = 0;
  for (const PuRange& core : topology.cores) {
    count += std::any_of(placement.pus.begin(), placement.pus.end(),
                         [&](std::uint32_t pu) { return core.contains(pu); })
                 ? 1U
                 : 0U;
  }
  return count;
}

// One CPU set for each thread: "0 1".
std::string progress_cpus_text(const std::vector<std::vector<std::uint32_t>>& threads) {
  std::string text;
  for (const auto& cpus : threads) text += (text.empty() ? "" : " ") + cpu_list_text(cpus);
  return text.empty() ? "-" : text;
}

}  // namespace

Result<Plan> make_plan(const Environment& environment, std::uint32_t rank_count, const std::string& policy,
                       const std::string& order) {
  const std::string text =
      !policy.empty() ? policy : std::string(environment.find("TUTTI_PIN").value_or("auto"));
  auto request = parse_pin(text == "none" ? "off" : text);
  if (!request) return request.status().with_context(policy.empty() ? "TUTTI_PIN" : "--bind");
  const auto variable = get_enum(environment, "TUTTI_PIN_ORDER");
  if (!variable) return variable.status();
  request->order = (order.empty() ? *variable : order) == "scatter" ? PinOrder::scatter : PinOrder::compact;
  auto topology = discover_topology(environment, Devices::find);
  if (!topology) return topology.status();
  auto placements = plan_placements(*topology, rank_count, *request);
  if (!placements) return placements.status().with_context(fmt::format("binding to '{}'", text));
  auto progress = read_progress_settings(environment);
  if (!progress) return progress.status();
  Plan plan{*std::move(topology), *std::move(request), *std::move(placements), {}};
  for (std::uint32_t rank = 0; rank < rank_count && !progress->cpus.entries.empty(); ++rank) {
    auto planned =
        plan_progress_cpus(plan.topology, progress->cpus, rank_count, rank, progress->thread_count);
    if (!planned) return planned.status().with_context("TUTTI_PROGRESS_AFFINITY");
    plan.progress_cpus.push_back(*std::move(planned));
  }
  return plan;
}

std::string describe(const Plan& plan) {
  const Topology& topology = plan.topology;
  std::string text = fmt::format("{} local ranks, policy {}, order {}\n", plan.placements.size(),
                                 to_string(plan.request.policy),
                                 plan.request.order == PinOrder::scatter ? "scatter" : "compact");
  std::vector<std::vector<std::string>> rows = {
      {"rank", "CPUs", "cores", "threads", "NUMA node", "GPU", "NIC"}};
  if (!plan.progress_cpus.empty()) rows[0].emplace_back("progress threads");
  const auto device_text = [&](const std::optional<std::uint32_t>& device) {
    return device ? name_of(topology.devices[*device]) : std::string("-");
  };
  for (std::size_t rank = 0; rank < plan.placements.size(); ++rank) {
    const Placement& placement = plan.placements[rank];
    rows.push_back({std::to_string(rank), cpu_list_text(cpus_of(topology, placement)),
                    std::to_string(core_count(topology, placement)), std::to_string(placement.thread_count),
                    numa_text(topology, placement), device_text(placement.gpu), device_text(placement.nic)});
    if (!plan.progress_cpus.empty()) rows.back().push_back(progress_cpus_text(plan.progress_cpus[rank]));
  }
  std::vector<std::size_t> widths(rows[0].size());
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < row.size(); ++i) line += fmt::format(" {:<{}}", row[i], widths[i]);
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

Json device_json(const Topology& topology, std::uint32_t index) {
  const Device& device = topology.devices[index];
  const auto all = topology.devices_of(device.kind);
  return {{"number", std::find(all.begin(), all.end(), index) - all.begin()},
          {"name", name_of(device)},
          {"names", device.names},
          {"pci", device.address},
          {"model", device.model},
          {"cpus", cpus_of(topology, device.pus)}};
}

Json to_json(const Plan& plan) {
  const Topology& topology = plan.topology;
  Json ranks = Json::array();
  for (std::size_t rank = 0; rank < plan.placements.size(); ++rank) {
    const Placement& placement = plan.placements[rank];
    Json nodes = Json::array();
    for (const std::uint32_t node : placement.numa_nodes) nodes.push_back(topology.numa_nodes[node].os_index);
    const std::vector<std::uint32_t> cpus = cpus_of(topology, placement);
    const Json progress_cpus = plan.progress_cpus.empty() ? Json() : Json(plan.progress_cpus[rank]);
    ranks.push_back({{"local_rank", rank},
                     {"cpus", cpus},
                     {"cpu_list", cpu_list_text(cpus)},
                     {"cores", core_count(topology, placement)},
                     {"threads", placement.thread_count},
                     {"numa_node", nodes.size() == 1 ? nodes.at(0) : Json()},
                     {"numa_nodes", nodes},
                     {"gpu", placement.gpu ? device_json(topology, *placement.gpu) : Json()},
                     {"nic", placement.nic ? device_json(topology, *placement.nic) : Json()},
                     {"progress_cpus", progress_cpus},
                     {"worker_cpus", progress_cpus}});  // deprecated name
  }
  return {{"source", topology.source},
          {"is_this_machine", topology.is_this_machine},
          {"policy", to_string(plan.request.policy)},
          {"order", plan.request.order == PinOrder::scatter ? "scatter" : "compact"},
          {"ranks", ranks}};
}

}  // namespace tutti::tool
