// `tutti info`: what this build and this machine have. Knows how to ask the registries, nothing of what they
// hold.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "backends/registry.hpp"
#include "runtime/algorithms/catalog.hpp"
#include "runtime/base/config.hpp"
#include "runtime/base/version.hpp"
#include "runtime/group/settings.hpp"
#include "runtime/kernels/kernels.hpp"
#include "runtime/selection/default_rules.hpp"
#include "runtime/selection/impi_numbers.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/bootstrap_text.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/json.hpp"
#include "tools/cli/peers_text.hpp"
#include "tools/cli/plan_text.hpp"
#include "tools/cli/run/run.hpp"
#include "tools/cli/topology_drawing.hpp"
#include "tools/cli/topology_text.hpp"
#include "topology/discovery.hpp"
#include "transports/registry.hpp"
#include "tutti_config.hpp"

namespace tutti::tool {
namespace {

// A transport or backend: its name, why it is not available (empty: it is), and a line about it.
struct Part {
  std::string name, missing, detail;
};

std::vector<Part> list_transports() {
  std::vector<Part> parts;
  const auto settings = read_transport_settings(Environment::of_process());
  for (const TransportEntry& entry : transport_entries()) {
    Part part{std::string(entry.name), std::string(entry.missing), ""};
    if (part.missing.empty()) {
      const auto transport = make_transport(entry.name, settings ? *settings : TransportSettings{});
      if (transport) {
        part.missing = (*transport)->caps().unavailable;
        part.detail = (*transport)->caps().detail;
      } else {
        part.missing = transport.status().message();
      }
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

std::vector<Part> list_backends() {
  std::vector<Part> parts;
  for (const BackendEntry& entry : backend_entries()) {
    Part part{std::string(entry.name), std::string(entry.missing), ""};
    if (part.missing.empty()) {
      const auto found = probe_backend(entry.name);
      if (found) part.detail = *found;
      if (!found) part.missing = found.status().message();
    }
    parts.push_back(std::move(part));
  }
  return parts;
}

// The tuning file that a run on this machine would use; only the run sees whether it fits the job.
std::string tuning_text(const Result<Topology>& topology) {
  if (!topology) return "not available (no topology)";
  const auto file = load_tuning(Environment::of_process(), fingerprint_of(*topology));
  return file ? describe(*file) : "not usable: " + file.status().message();
}

// "any p, commutative op": when a row may run.
std::string legality_text(const AlgorithmRow& row) {
  const Legality& legality = row.legality;
  std::string text = legality.needs_power_of_two ? "p a power of two"
                     : legality.needs_even       ? "even p"
                                                 : "any p";
  if (legality.max_size > 0) text += fmt::format(" up to {}", legality.max_size);
  if (legality.needs_hierarchy) text += ", at least two domains";
  if (legality.needs_commutative && is_reducing(row.collective)) text += ", commutative op";
  if (legality.needs_hierarchy && is_reducing(row.collective))
    text += ", commutative op or domains of neighbours";
  if (legality.equal_counts_only) text += ", equal counts";
  if (legality.is_out_of_place_only) text += ", not in place";
  if (is_reducing(row.collective) && !row.same_bits) text += ", bits may differ between ranks";
  return text;
}

std::string params_text(const AlgorithmRow& row) {
  std::string text;
  for (const ParamRow& param : row.params) {
    text += fmt::format("{}{}={} ({}..{})", text.empty() ? "" : ", ", param.name, param.default_value,
                        param.min_value, param.max_value);
  }
  return text;
}

void print_parts(std::string_view title, const std::vector<Part>& parts) {
  fmt::print("{}:\n", title);
  for (const Part& part : parts) {
    if (part.missing.empty()) {
      fmt::print("  {}: available{}{}\n", part.name, part.detail.empty() ? "" : ", ", part.detail);
    } else {
      fmt::print("  {}: not available ({})\n", part.name, part.missing);
    }
  }
}

// On one screen.
void print_summary() {
  fmt::print("tutti {} ({}), built with {}, {}\n", version_text(), build_id(), TUTTI_COMPILER,
             TUTTI_BUILD_TYPE);
  std::vector<std::string_view> targets = supported_kernel_targets();
  fmt::print("cpu: {}, {} allowed, kernels use {} of {}\n", cpu_model(), count_allowed_cpus(),
             kernel_target(), joined(targets, " "));
  const auto topology = discover_topology(Environment::of_process());
  fmt::print("{}", topology ? describe(*topology)
                            : fmt::format("topology: not available ({})\n", topology.status().message()));
  fmt::print("tuning file: {}\n", tuning_text(topology));
  print_parts("transports", list_transports());
  print_parts("backends", list_backends());
  std::string counts;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    const auto rows = std::ranges::count(catalog(), collective, &AlgorithmRow::collective);
    if (rows > 0) counts += fmt::format("{}{} {}", counts.empty() ? "" : ", ", rows, to_string(collective));
  }
  fmt::print(
      "algorithms: {}\n`tutti info --algorithms` describes them, --env lists the variables, --topology draws "
      "the machine.\n",
      counts);
}

void print_algorithms() {
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    bool has_rows = false;
    for (const AlgorithmRow& row : catalog()) {
      if (row.collective != collective) continue;
      if (!has_rows) {
        fmt::print("{}\n", to_string(collective));
        for (const DefaultSet set : kDefaultSets) {
          if (const std::string_view rules = default_rules(collective, set); !rules.empty())
            fmt::print("  default {}: {}\n", to_string(set), rules);
        }
        if (const std::string_view rules = shared_buffer_rules(collective); !rules.empty())
          fmt::print("  of those, where the buffers of all ranks are shared: {}\n", rules);
      }
      has_rows = true;
      fmt::print("  {:<22} {}\n  {:<22} {}; {}\n", row.name, row.summary, "", row.cost, legality_text(row));
      if (!row.params.empty()) fmt::print("  {:<22} parameters: {}\n", "", params_text(row));
    }
  }
}

Json parts_json(const std::vector<Part>& parts) {
  Json list = Json::array();
  for (const Part& part : parts)
    list.push_back({{"name", part.name},
                    {"available", part.missing.empty()},
                    {"reason", part.missing},
                    {"detail", part.detail}});
  return list;
}

Json topology_json() {
  const auto found = discover_topology(Environment::of_process());
  if (!found) return {{"available", false}, {"reason", found.status().message()}};
  const Topology& topology = *found;
  Json caches = Json::array(), nodes = Json::array(), allowed = Json::array();
  for (const Cache& cache : topology.caches) {
    caches.push_back({{"level", cache.level},
                      {"bytes", cache.bytes},
                      {"line_bytes", cache.line_bytes},
                      {"cpus", cpus_of(topology, cache.pus)}});
  }
  for (const NumaNode& node : topology.numa_nodes) {
    nodes.push_back(
        {{"number", node.os_index}, {"bytes", node.bytes}, {"cpus", cpus_of(topology, node.pus)}});
  }
  for (const std::uint32_t pu : topology.allowed_pus()) allowed.push_back(topology.pus[pu].os_index);
  return {{"available", true},
          {"source", topology.source},
          {"detail", topology.detail},
          {"sockets", topology.sockets.size()},
          {"cores", topology.cores.size()},
          {"pus", topology.pus.size()},
          {"allowed_cpus", allowed},
          {"cpu_quota_milli", topology.cpu_quota_milli},
          {"memory_limit_bytes", topology.memory_limit_bytes},
          {"numa_nodes", nodes},
          {"caches", caches},
          {"summary", to_summary(topology)},
          {"card", to_summary(topology)}};
}

Json all_json() {
  Json rows = Json::array();
  for (const AlgorithmRow& row : catalog()) {
    Json params = Json::array();
    for (const ParamRow& p : row.params) {
      params.push_back(
          {{"name", p.name}, {"default", p.default_value}, {"min", p.min_value}, {"max", p.max_value}});
    }
    rows.push_back({{"collective", to_string(row.collective)},
                    {"name", row.name},
                    {"summary", row.summary},
                    {"cost", row.cost},
                    {"legality", legality_text(row)},
                    {"same_bits", row.same_bits},
                    {"params", params}});
  }
  std::array<Json, std::size(kDefaultSets)> defaults;
  Json shared_buffers = Json::object();
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    for (const DefaultSet set : kDefaultSets) {
      if (const std::string_view rules = default_rules(collective, set); !rules.empty())
        defaults[static_cast<std::size_t>(set)][std::string(to_string(collective))] = rules;
    }
    if (const std::string_view rules = shared_buffer_rules(collective); !rules.empty())
      shared_buffers[std::string(to_string(collective))] = rules;
  }
  return {{"version", version_text()},
          {"build", build_id()},
          {"compiler", TUTTI_COMPILER},
          {"build_type", TUTTI_BUILD_TYPE},
          {"cpu", cpu_model()},
          {"allowed_cpus", count_allowed_cpus()},
          {"kernel_target", kernel_target()},
          {"topology", topology_json()},
          {"tuning_file", tuning_text(discover_topology(Environment::of_process()))},
          {"transports", parts_json(list_transports())},
          {"backends", parts_json(list_backends())},
          {"algorithms", rows},
          {"default_rules", defaults[static_cast<std::size_t>(DefaultSet::node)]},
          {"default_rules_across_sockets_before_these",
           defaults[static_cast<std::size_t>(DefaultSet::node_sockets)]},
          {"default_rules_with_large_domains_before_these",
           defaults[static_cast<std::size_t>(DefaultSet::node_large_domains)]},
          {"default_rules_where_ranks_share_cpus",
           defaults[static_cast<std::size_t>(DefaultSet::node_shared_cpus)]},
          {"default_rules_across_nodes", defaults[static_cast<std::size_t>(DefaultSet::network)]},
          {"default_rules_across_nodes_where_ranks_share_cpus",
           defaults[static_cast<std::size_t>(DefaultSet::network_shared_cpus)]},
          {"default_rules_where_buffers_are_shared", shared_buffers}};
}

Json environment_json() {
  Json list = Json::array();
  const Environment environment = Environment::of_process();
  for (const Variable& variable : kVariables) {
    const auto [name, text] = find_value(environment, variable.name);
    Json entry = {{"name", variable.name},
                  {"default", variable.default_text},
                  {"help", variable.help},
                  {"value", nullptr}};
    if (!name.empty()) entry["value"] = variable.is_secret ? "(set)" : text;
    list.push_back(std::move(entry));
  }
  return list;
}

void print_numbers(bool is_json) {
  Json list = Json::array();
  if (!is_json) {
    fmt::print(
        "Numbers of I_MPI_ADJUST_<COLLECTIVE> and TUTTI_ADJUST_<COLLECTIVE>; 0 and auto are the automatic "
        "choice.\n");
  }
  for (const ImpiNumber& row : impi_numbers()) {
    if (is_json) {
      list.push_back({{"collective", to_string(row.collective)},
                      {"number", row.number},
                      {"intel_name", row.intel_name},
                      {"algorithm", row.algorithm},
                      {"is_substitute", row.is_substitute}});
    } else {
      fmt::print("  {:<15} {:>3}  {:<44} {}{}\n", to_string(row.collective), row.number, row.intel_name,
                 row.algorithm, row.is_substitute ? " (substitute)" : "");
    }
  }
  if (is_json) fmt::print("{}\n", list.dump(1));
}

constexpr std::uint32_t kMaxPlannedRanks = 4096;

int print_plan(std::uint32_t rank_count, const std::string& policy, const std::string& order, bool is_json) {
  const auto plan = make_plan(Environment::of_process(), rank_count, policy, order);
  if (!plan) return usage_error("info", plan.status());
  if (is_json) {
    fmt::print("{}\n", to_json(*plan).dump(1));
  } else {
    fmt::print("{}{}", describe(plan->topology), describe(*plan));
  }
  return 0;
}

struct DrawingOptions {
  std::uint32_t rank_count = 0;
  std::string policy, order, plot_path;
};

int print_topology(const DrawingOptions& options, bool is_json) {
  if (!options.plot_path.empty() && !options.plot_path.ends_with(".svg"))
    return usage_error("info", invalid_argument("--plot: expected a name that ends in .svg"));
  if (!options.plot_path.empty())
    if (const Status checked = check_writable("--plot", options.plot_path); !checked)
      return usage_error("info", checked);
  const auto plan = make_plan(Environment::of_process(), options.rank_count, options.policy, options.order);
  if (!plan) return usage_error("info", plan.status());
  const Json boxes = boxes_of(*plan);
  if (is_json) {
    fmt::print("{}\n", boxes.dump(1));
  } else {
    fmt::print("{}{}{}", describe(plan->topology), draw(boxes),
               options.rank_count > 0 ? describe(*plan) : std::string());
  }
  if (options.plot_path.empty()) return 0;
  const Status drawn = draw_svg(boxes, options.plot_path);
  if (!drawn) fmt::print(stderr, "tutti info: --plot: {}\n", drawn.message());
  return drawn ? 0 : 1;
}

struct Chosen {
  bool is_environment, is_algorithms, is_rules, is_json;
};

void print_chosen(const Chosen& what) {
  if (what.is_rules) {
    print_numbers(what.is_json);
  } else if (what.is_environment && what.is_json) {
    fmt::print("{}\n", environment_json().dump(1));
  } else if (what.is_environment) {
    fmt::print("{}", describe_environment_text(Environment::of_process()));
  } else if (what.is_json) {
    fmt::print("{}\n", all_json().dump(1));
  } else if (what.is_algorithms) {
    print_algorithms();
  } else {
    print_summary();
  }
}

}  // namespace

int info_command(int argc, char** argv) {
  bool is_environment = false, is_algorithms = false, is_rules = false, is_peers = false;
  bool is_bootstrap = false, is_json = false;
  ArgumentParser app(
      "Says what this build and this machine have: version, CPU, topology, transports and backends with the "
      "reason\n"
      "where one is missing, and how many algorithms each collective has.",
      "tutti info");
  Argument environment =
      app.add_flag("--env", is_environment, "the configuration variables, their values here and meanings");
  app.add_flag("--algorithms", is_algorithms,
               "every algorithm with its cost and when it may run, and the rules that choose among them")
      .excludes(environment);
  app.add_flag("--rules", is_rules, "the numbers of I_MPI_ADJUST_* and the algorithms they name")
      .excludes(environment);
  app.add_flag("--peers", is_peers,
               "inside a job: which transport carries messages between which ranks, and why")
      .excludes(environment);
  app.add_flag("--bootstrap", is_bootstrap,
               "which launcher started this process, and the place that it tells; asks the launcher")
      .excludes(environment);
  std::uint32_t planned_ranks = 0;
  std::string policy, order;
  Argument plan = app.add_option("--plan", planned_ranks,
                                 "which CPUs, NUMA node, GPU and NIC each of that many local ranks would get")
                      .excludes(environment);
  app.add_option("--bind", policy, "for --plan: as of tutti run (default: TUTTI_PIN, else auto)").needs(plan);
  app.add_option("--bind-order", order, "for --plan: compact or scatter")
      .needs(plan)
      .one_of({"compact", "scatter"});
  bool is_topology = false;
  std::string plot_path;
  Argument topology =
      app.add_flag("--topology", is_topology,
                   "draws this machine, or that of TUTTI_TOPOLOGY, with the ranks of --plan on it")
          .excludes(environment);
  app.add_option("--plot", plot_path, "for --topology: the same to a .svg file").needs(topology);
  app.add_flag("--json", is_json, "the same for programs");
  int status = 0;
  if (!app.parse(argc, argv, &status)) return status;
  if (is_peers) return print_peers(is_json);
  if (is_bootstrap) return print_bootstrap(is_json);
  if (plan.count() > 0 && (planned_ranks < 1 || planned_ranks > kMaxPlannedRanks))
    return usage_error("info", invalid_argument(fmt::format("--plan: expected 1 to {} local ranks, got {}",
                                                            kMaxPlannedRanks, planned_ranks)));
  if (is_topology) return print_topology({planned_ranks, policy, order, plot_path}, is_json);
  if (plan.count() > 0) return print_plan(planned_ranks, policy, order, is_json);
  print_chosen({is_environment, is_algorithms, is_rules, is_json});
  return 0;
}

}  // namespace tutti::tool
