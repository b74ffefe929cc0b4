// Gathers settings and versions, and works out where the ranks sat. See about.hpp.
#include "tools/cli/bench/about.hpp"

#include <fmt/format.h>
#include <sys/utsname.h>

#include <algorithm>
#include <string_view>

#include "runtime/base/version.hpp"
#include "tools/cli/bench/placement.hpp"
#include "tools/cli/bench/report.hpp"
#include "tools/cli/plan_text.hpp"
#include "tools/cli/topology_drawing.hpp"
#include "tools/cli/topology_text.hpp"
#include "topology/discovery.hpp"
#include "tutti_config.hpp"

namespace tutti::tool {
namespace {

Json pair_of(std::string_view name, const std::string& value) {
  Json pair = Json::array();
  pair.push_back(name);
  pair.push_back(value);
  return pair;
}

// One CPU for each rank, as bind_to_core() deals them.
std::vector<Placement> bound_placements(const Topology& topology, MapLevel map, int rank_count) {
  const std::vector<int> cpus = allowed_cpus_by(map, topology);
  std::vector<Placement> placements(static_cast<std::size_t>(rank_count));
  for (std::size_t rank = 0; rank < placements.size(); ++rank) {
    const int cpu = cpus[rank % cpus.size()];
    const auto pu = std::find_if(topology.pus.begin(), topology.pus.end(),
                                 [&](const auto& one) { return static_cast<int>(one.os_index) == cpu; });
    placements[rank].pus = {static_cast<std::uint32_t>(pu - topology.pus.begin())};
  }
  return placements;
}

// Ranks of a launcher and ranks that move are in no box; the text says why.
Json machine_of(const BenchOptions& options, const Environment& environment, const std::string& launcher) {
  Plan plan;
  plan.topology = discover_this_machine();
  std::string how = "free to move";
  const bool is_pinned = environment.find("TUTTI_PIN").value_or("off") != "off";
  if (!launcher.empty()) {
    how = "placed by " + launcher;
  } else if (options.nodes.node_count > 0) {
    how = "in network namespaces of this machine";
  } else if (options.binding == Binding::core) {
    plan.placements = bound_placements(plan.topology, options.map, options.rank_count);
    how = options.has_map ? fmt::format("bound to one CPU each, mapped by {}", to_string(options.map))
                          : "bound to one CPU each";
  } else if (is_pinned) {
    auto pinned = make_plan(environment, static_cast<std::uint32_t>(options.rank_count), "", "");
    if (pinned) plan = *std::move(pinned);
    how = "bound by TUTTI_PIN";
  }
  Json boxes = boxes_of(plan);
  if (launcher.empty()) boxes["rank_count"] = options.rank_count;
  boxes["policy"] = how;
  return boxes;
}

Json settings_of(const BenchOptions& options, const Environment& environment) {
  Json list = Json::array();
  list.push_back(pair_of("calls", std::string(bench::to_string(options.loop.mode))));
  list.push_back(pair_of("sizes", fmt::format("{} to {}, factor {}", bytes_text(options.first_bytes),
                                              bytes_text(options.last_bytes), options.factor)));
  list.push_back(pair_of("time for each size", fmt::format("{:g} s", options.loop.budget_seconds)));
  list.push_back(pair_of(
      "results", options.is_checked || !options.against.empty() ? "verified bit by bit" : "not verified"));
  list.push_back(pair_of(
      "memory", fmt::format("{}, {} pages",
                            options.allocation == Allocation::tutti_heap ? "shared by the node" : "malloc",
                            options.pages == bench::Pages::huge ? "transparent huge" : "4 KiB")));
  if (!options.against.empty())
    list.push_back(pair_of("rounds", fmt::format("{} of each library and size", options.round_count)));
  if (!options.algorithm.empty()) list.push_back(pair_of("algorithm", options.algorithm));
  if (!options.workload.empty()) list.push_back(pair_of("workload", options.workload));
  if (options.neighbour_count > 0)
    list.push_back(pair_of("busy processes beside", std::to_string(options.neighbour_count)));
  for (const Variable& variable : kVariables) {
    const auto [name, text] = find_value(environment, variable.name);
    if (!name.empty())
      list.push_back(pair_of(name, variable.is_secret ? std::string("(set)") : std::string(text)));
  }
  return list;
}

Json versions_of() {
  Json list = Json::array();
  list.push_back(pair_of("program", fmt::format("tutti {}, build {}, {}, {}", version_text(), build_id(),
                                                TUTTI_COMPILER, TUTTI_BUILD_TYPE)));
  list.push_back(pair_of("processor", cpu_model()));
  utsname system{};
  if (::uname(&system) == 0)
    list.push_back(pair_of("system", fmt::format("{} {}", system.sysname, system.release)));
  return list;
}

std::string command_of(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) {
    const bool is_plain =
        !word.empty() && word.find_first_of(" \t\n'\"\\$`;&|<>()*?[]#~") == std::string::npos;
    text += fmt::format("{}{}", text.empty() ? "" : " ", is_plain ? word : "'" + word + "'");
  }
  return text;
}

}  // namespace

Json about_run(const BenchOptions& options, const Environment& environment,
               const std::vector<std::string>& words, const std::string& launcher) {
  return {{"command", command_of(words)},
          {"machine", machine_of(options, environment, launcher)},
          {"settings", settings_of(options, environment)},
          {"versions", versions_of()}};
}

}  // namespace tutti::tool
