// `tutti explain`: which algorithm a call runs, by which rule, and what every other one would cost. Knows no
// rule and no price itself; starts nothing, so the machine may be one that nobody here owns.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/base/rank_lists.hpp"
#include "runtime/group/settings.hpp"
#include "runtime/selection/explain.hpp"
#include "runtime/selection/line_costs.hpp"
#include "tools/cli/arguments.hpp"
#include "tools/cli/assumed_domains.hpp"
#include "tools/cli/commands.hpp"
#include "tools/cli/explain_device.hpp"
#include "tools/cli/json.hpp"
#include "tools/cli/run/run.hpp"
#include "tools/cli/starting_model.hpp"

namespace tutti::tool {
namespace {

constexpr std::uint32_t kNotGiven = ~0U;

struct ExplainOptions {
  std::string collective, bytes, dtype = "f32", transport, topology, algorithm, device = "host", gpu_link;
  std::string node;
  std::uint32_t rank_count = kNotGiven, per_node = 0, gpus = 0;
  bool is_ordered = false, is_json = false;
};

constexpr std::uint32_t kMostRanks = 1U << 16U;

// A question with what it points to.
struct Case {
  WorldSettings settings;
  Question question;
  Hierarchy hierarchy;
  Setting setting;
  StartingModel start;
  const MachineClass* machine = nullptr;
  std::uint32_t rank_count = 0, per_node = 0;
  bool has_measured_costs = false;
  Dtype dtype = Dtype::f32;
};

// "FILE" is short for "xml:FILE".
std::string topology_text(const std::string& text) {
  const bool is_named = text.rfind("xml:", 0) == 0 || text.rfind("synthetic:", 0) == 0;
  return is_named ? text : "xml:" + text;
}

// The tuning file's costs where it has them; false: nothing that matters is known.
bool use_measured(const Tuning& tuning, const StartingModel& start, bool has_network, CostModel& model) {
  const auto node = tuning.costs.find(start.node_transport);
  const auto network = tuning.costs.find(start.network_transport);
  if (node == tuning.costs.end() || (has_network && network == tuning.costs.end())) return false;
  const LinkCost beyond = has_network ? network->second.link(Level::network) : model.link(Level::network);
  const CostModel starting = model;
  model = has_network ? network->second : node->second;
  model.links = node->second.links;
  model.lines = node->second.lines;
  // Files of older releases have no figures of lines.
  if (!model.has_lines()) model.lines = starting.lines;
  model.far_reader_slows_all = starting.far_reader_slows_all;
  model.complete();
  model.link(Level::network) = beyond;
  return true;
}

std::string joined_nodes() {
  std::string names;
  for (const NamedNode& node : named_nodes())
    names += fmt::format("{}{}", names.empty() ? "" : ", ", node.name);
  return names;
}

Status node_error(const ExplainOptions& options) {
  return invalid_argument(
      fmt::format("--node '{}': expected one of {}, and no --topology", options.node, joined_nodes()));
}

// A job of p ranks, `per_node` on each node but the last.
JobShape job_of(const StartingModel& start, std::uint32_t p, std::uint32_t per_node) {
  JobShape job;
  if (per_node > 1 && p > 1) job.node_transport = start.node_transport;
  if (per_node < p) job.network_transport = start.network_transport;
  job.most_ranks_per_node = std::min(per_node, p);
  job.least_ranks_per_node = p % per_node == 0 ? job.most_ranks_per_node : p % per_node;
  return job;
}

// The machine that the options name, its class, and the number of ranks.
Status find_machine(const ExplainOptions& options, Environment& environment, Case& made) {
  const NamedNode* node = nullptr;
  if (!options.node.empty()) {
    node = find_named_node(options.node);
    if (node == nullptr || !options.topology.empty()) return node_error(options);
  }
  if (!options.topology.empty()) environment.set("TUTTI_TOPOLOGY", topology_text(options.topology));
  if (node != nullptr) environment.set("TUTTI_TOPOLOGY", fmt::format("synthetic:{}", node->synthetic));
  auto settings = read_settings(environment);
  if (!settings) return settings.status();
  made.settings = *std::move(settings);
  const Topology& topology = made.settings.topology;
  made.machine =
      node != nullptr ? find_machine_class(node->machine_class) : &machine_class_of(topology.cpu_model);
  made.rank_count = options.rank_count;
  if (options.rank_count == kNotGiven)
    made.rank_count = node == nullptr ? 4 : static_cast<std::uint32_t>(topology.cores.size());
  return {};
}

// Has more than 15 decisions because there is one for each mistake in the options.
Result<Case> make_case(const ExplainOptions& options) {
  Case made;
  const auto collective = parse_collective(options.collective);
  if (!collective || *collective == Collective::send_recv)
    return select_rows(collective ? "send_recv" : options.collective, "").status();
  const auto bytes = parse_size(options.bytes);
  if (!bytes)
    return invalid_argument(fmt::format("'{}': expected bytes such as 4096, 64k or 1m", options.bytes));
  const auto dtype = parse_dtype(options.dtype);
  if (!dtype)
    return invalid_argument(
        fmt::format("--dtype '{}': expected one of {}", options.dtype, joined(kDtypeNames, " ")));
  made.dtype = *dtype;
  Environment environment = Environment::of_process();
  TUTTI_RETURN_IF_ERROR(find_machine(options, environment, made));
  const Topology& topology = made.settings.topology;
  const std::uint32_t p = made.rank_count;
  if (p < 1 || p > kMostRanks) return invalid_argument(fmt::format("-n: expected 1 to {} ranks", kMostRanks));
  const std::uint32_t per_node = options.per_node == 0 ? p : options.per_node;
  const bool has_network = per_node < p;
  made.per_node = per_node;

  auto start = starting_model(environment, options.transport, has_network, *dtype, *made.machine);
  if (!start) return start.status().with_context("--transport");
  made.start = *std::move(start);

  // Ranks of a job that pretends to another machine (TUTTI_TOPOLOGY) run on this one's CPUs all the same.
  const std::size_t cpu_count = options.topology.empty() && options.node.empty()
                                    ? static_cast<std::size_t>(count_allowed_cpus())
                                    : topology.allowed_pus().size();
  const WorldDomains domains =
      assume_domains(made.settings, p, per_node, static_cast<std::uint32_t>(cpu_count));
  TUTTI_RETURN_IF_ERROR(domains.check());
  const std::vector<int> world_ranks = first_ranks(p);
  made.hierarchy = domains.hierarchy_of(world_ranks);
  made.question.collective = *collective;
  made.question.bytes = *bytes;
  made.question.size = p;
  made.question.is_commutative = !options.is_ordered;
  made.question.reach = domains.spans_nodes(world_ranks) ? Reach::network : Reach::node;
  made.question.shares_cpus = domains.shares_cpus(world_ranks);
  made.question.spans_sockets = domains.spans_sockets(world_ranks);

  made.setting.places = domains.places_of(world_ranks);
  Fingerprint here = fingerprint_of(made.settings.topology);
  append_job(here, job_of(made.start, p, per_node));
  TUTTI_RETURN_IF_ERROR(made.settings.judge_tuning(here));
  made.setting.model = made.start.model;
  made.has_measured_costs =
      use_measured(made.settings.tuning.tuning, made.start, has_network, made.setting.model);
  made.setting.is_lowered = !has_network && made.start.shares_memory && made.settings.uses_control_blocks;
  return made;
}

// The question about a call on buffers of GPUs. Errors: invalid_argument, naming the option.
Result<DeviceAsked> device_case(const ExplainOptions& options, const Case& asked) {
  if (asked.question.collective == Collective::barrier)
    return invalid_argument("--device cuda: a barrier has no buffers, and goes by the host");
  if (!options.transport.empty()) {
    return invalid_argument(
        "--transport: engines for buffers on GPUs are priced without one; leave out either it or --device");
  }
  DeviceAsked made;
  const auto link = std::find(kGpuLinkNames.begin(), kGpuLinkNames.end(), options.gpu_link);
  if (link == kGpuLinkNames.end() && !options.gpu_link.empty()) {
    return invalid_argument(
        fmt::format("--gpu-link '{}': expected one of {}", options.gpu_link, joined(kGpuLinkNames, " ")));
  }
  if (link != kGpuLinkNames.end()) made.link = static_cast<GpuLink>(link - kGpuLinkNames.begin());
  const std::uint32_t p = asked.rank_count, per_node = asked.per_node;
  made.question = asked.question;
  made.question.is_device = true;
  made.setting.layout = {(p + per_node - 1) / per_node, std::min(p, per_node)};
  made.setting.model = device_model(made.link);
  made.setting.gpus_per_node = options.gpus == 0 ? made.setting.layout.per_node : options.gpus;
  made.setting.dtype = asked.dtype;
  made.algorithm = options.algorithm;
  made.is_json = options.is_json;
  return made;
}

// Of many domains not every rank.
std::string domains_text(const Hierarchy& hierarchy) {
  if (hierarchy.is_flat()) return "none";
  if (hierarchy.size() <= 32) return to_text(hierarchy);
  return fmt::format("{} of {}{} ranks", hierarchy.domain_count(), hierarchy.is_even() ? "" : "at least ",
                     hierarchy.smallest_domain());
}

std::string time_text(std::uint64_t ps) {
  const double us = static_cast<double>(ps) / 1e6;
  return us < 10000 ? fmt::format("{:.2f}", us) : fmt::format("{:.0f}", us);
}

std::string prices_text(const Case& asked) {
  if (asked.has_measured_costs) return "as measured for the tuning file";
  if (!asked.setting.is_lowered) return "from the transports' own figures: nobody has measured them here";
  return fmt::format("predicted, for lines of {}, {}", asked.machine->name, asked.machine->source);
}

// The cache lines that the chosen algorithm waits for, by level.
void print_path(const Case& asked, const Candidate& chosen) {
  if (asked.setting.is_lowered && chosen.price && !chosen.price->is_estimate) {
    fmt::print("  path       {:>10} {:>10} {:>10} {:>10}  cache lines that the call waits for\n", "transfers",
               "further", "in a row", "us");
    for (std::size_t i = 0; i < kLevelCount; ++i) {
      const auto level = static_cast<Level>(i);
      const PathCounts::AtLevel& at = chosen.price->path.levels[i];
      if (at == PathCounts::AtLevel()) continue;
      fmt::print("    {:<8} {:>10} {:>10} {:>10} {:>10}\n", to_string(level), at.line_transfers,
                 at.further_lines, at.line_bytes / 64,
                 time_text(price_level(chosen.price->path, asked.setting.model, level)));
    }
  }
  fmt::print("\n");
}

void print_text(const Case& asked, const Explanation& answer) {
  const Question& q = asked.question;
  const Candidate* chosen = nullptr;
  for (const Candidate& c : answer.candidates) {
    if (c.is_chosen) chosen = &c;
  }
  fmt::print("{} of {} bytes over {} ranks {}: {}\n", to_string(q.collective), q.bytes, q.size,
             to_string(q.default_set()), to_text(*chosen->row, chosen->params));
  fmt::print("  rule       {}\n", chosen->reason);
  if (answer.chosen.shared_row != nullptr)
    fmt::print("  shared     {} where the buffers of all ranks are in shared memory\n",
               answer.chosen.shared_row->name);
  fmt::print("  domains    {}\n", domains_text(asked.hierarchy));
  fmt::print("  carried    {}\n",
             asked.setting.is_lowered ? "in memory that the ranks share (" + asked.start.node_transport + ")"
             : q.reach == Reach::node
                 ? "by messages (" + asked.start.node_transport + ")"
                 : fmt::format("by messages ({}; between nodes {})", asked.start.node_transport,
                               asked.start.network_transport));
  const TuningFile& tuning = asked.settings.tuning;
  fmt::print("  tuning     {}\n", describe(tuning));
  fmt::print("  prices     in microseconds, {}\n", prices_text(asked));
  print_path(asked, *chosen);
  fmt::print("{:>12} {:>10} {:>10} {:>10}  {:<34} {}\n", "predicted", "latency", "bytes", "reduction",
             "algorithm", "why not");
  for (const Candidate& c : answer.candidates) {
    std::string times = fmt::format("{:>12} {:>10} {:>10} {:>10}", "-", "", "", "");
    if (c.price)
      times = fmt::format("{:>12} {:>10} {:>10} {:>10}", time_text(c.price->total_ps),
                          time_text(c.price->latency_ps), time_text(c.price->bytes_ps),
                          time_text(c.price->reduce_ps));
    fmt::print("{}  {:<34} {}\n", times, to_text(*c.row, c.params),
               c.is_chosen ? "<- chosen" : (c.is_legal ? "" : "not legal: ") + c.reason);
  }
}

Json params_json(const Candidate& c) {
  Json params = Json::object();
  for (const ParamRow& param : c.row->params) params[std::string(param.name)] = c.params.*(param.field);
  return params;
}

Json to_json(const Case& asked, const Explanation& answer) {
  const Question& q = asked.question;
  Json candidates = Json::array();
  for (const Candidate& c : answer.candidates) {
    Json entry = {{"algorithm", c.row->name}, {"params", params_json(c)}, {"legal", c.is_legal},
                  {"chosen", c.is_chosen},    {"reason", c.reason},       {"predicted_us", nullptr}};
    if (c.price) {
      const auto us = [](std::uint64_t ps) { return static_cast<double>(ps) / 1e6; };
      entry["predicted_us"] = us(c.price->total_ps);
      entry["latency_us"] = us(c.price->latency_ps);
      entry["bytes_us"] = us(c.price->bytes_ps);
      entry["reduction_us"] = us(c.price->reduce_ps);
      for (std::size_t i = 0; i < kLevelCount; ++i) {
        const PathCounts::AtLevel& at = c.price->path.levels[i];
        if (at == PathCounts::AtLevel()) continue;
        const auto level = static_cast<Level>(i);
        entry["levels"][std::string(to_string(level))] = {
            {"line_transfers", at.line_transfers},
            {"further_lines", at.further_lines},
            {"lines_in_a_row", at.line_bytes / 64},
            {"us", us(price_level(c.price->path, asked.setting.model, level))}};
      }
    }
    candidates.push_back(std::move(entry));
  }
  return {
      {"collective", to_string(q.collective)},
      {"bytes", q.bytes},
      {"dtype", to_string(asked.dtype)},
      {"ranks", q.size},
      {"reach", to_string(q.reach)},
      {"shares_cpus", q.shares_cpus},
      {"domains", asked.hierarchy.is_flat() ? 0U : asked.hierarchy.domain_count()},
      {"lowered", asked.setting.is_lowered},
      {"node_transport", asked.start.node_transport},
      {"network_transport", q.reach == Reach::network ? Json(asked.start.network_transport) : Json(nullptr)},
      {"algorithm", answer.chosen.row->name},
      {"shared_buffers_algorithm",
       answer.chosen.shared_row == nullptr ? Json(nullptr) : Json(answer.chosen.shared_row->name)},
      {"source", answer.chosen.source},
      {"item", answer.chosen.item},
      {"line", answer.chosen.line == 0 ? Json(nullptr) : Json(answer.chosen.line)},
      {"decided_by", describe_source(answer.chosen)},
      {"tuning_file", asked.settings.tuning.is_used() ? Json(asked.settings.tuning.path) : Json(nullptr)},
      {"tuning", describe(asked.settings.tuning)},
      {"machine_class", asked.machine->name},
      {"prices_measured", asked.has_measured_costs},
      {"rule", answer.rule},
      {"candidates", candidates}};
}

void add_options(ArgumentParser& app, ExplainOptions& options) {
  app.footer(
      "Examples:\n"
      "  tutti explain allreduce 64k -n 8\n"
      "  tutti explain allgather 1m -n 128 --ppn 8 --transport ucx\n"
      "  tutti explain allreduce 8 --node epyc-2x64\n"
      "  tutti explain allreduce 1m -n 24 --topology 'synthetic:pack:2 l3:1 core:12 pu:1'\n"
      "  tutti explain allreduce 1m -n 8 --device cuda\n"
      "  TUTTI_ADJUST_ALLREDUCE='ring:1m-' tutti explain allreduce 4m -n 16 --json");
  app.add_option("collective", options.collective,
                 "allreduce, allgather, ... (`tutti info --algorithms` lists them)");
  app.add_option(
      "bytes", options.bytes,
      "of the full vector: 4096, 64k, 1m (allgather: of all ranks; alltoall: of one rank's buffer)");
  app.add_option("-n,--ranks", options.rank_count,
                 "number of ranks (default: 4; with --node one for each core)");
  app.add_option("--node", options.node, "a machine by its name, of which " + joined_nodes() + " are known");
  app.add_option("--ppn", options.per_node, "ranks on each node (default: all on one)");
  app.add_option("--dtype", options.dtype, "the elements' type").show_default();
  app.add_flag("--ordered", options.is_ordered, "the op is not commutative");
  app.add_option("--transport", options.transport,
                 "transport of messages: on one node between all ranks, on several between nodes");
  app.add_option(
      "--topology", options.topology,
      "the machine: a file of lstopo, or synthetic:STRING (default: TUTTI_TOPOLOGY, else this one)");
  app.add_option("--algorithm", options.algorithm, "the call's own argument, such as 'bruck(radix=4)'");
  app.add_option("--device", options.device,
                 "where the buffers are: host, or cuda: the engine of the call, and the price of each")
      .show_default();
  app.add_option("--gpus", options.gpus, "of a call on GPUs: on each node (default: one for each rank)");
  app.add_option("--gpu-link", options.gpu_link, "what connects them: nvlink (default) or pcie");
  app.add_flag("--json", options.is_json, "the same for programs");
}

}  // namespace

int explain_command(int argc, char** argv) {
  ExplainOptions options;
  ArgumentParser app(
      "Says which algorithm a call runs and which rule says so, what every algorithm is predicted to take, "
      "split\n"
      "into latency, bytes and reduction, and why the others were not taken. Runs nothing: the ranks and the "
      "machine\n"
      "may be made up.",
      "tutti explain");
  add_options(app, options);
  int status = 0;
  if (!app.parse(argc, argv, &status)) return status;

  if (options.collective.empty() || options.bytes.empty())
    return usage_error("explain", invalid_argument("name a collective and the bytes of its full vector: "
                                                   "tutti explain allreduce 64k -n 8"));
  const bool is_device = options.device == "cuda";
  if (!is_device && options.device != "host")
    return usage_error("explain",
                       invalid_argument(fmt::format("--device '{}': expected host or cuda", options.device)));
  if (!is_device && (options.gpus != 0 || !options.gpu_link.empty()))
    return usage_error("explain", invalid_argument("--gpus and --gpu-link are for --device cuda"));
  auto asked = make_case(options);
  if (!asked) return usage_error("explain", asked.status());
  asked->question.hierarchy = &asked->hierarchy;
  if (is_device) {
    const auto on_devices = device_case(options, *asked);
    if (!on_devices) return usage_error("explain", on_devices.status());
    return explain_on_devices(*asked->settings.selector, *on_devices);
  }
  const auto answer = explain(*asked->settings.selector, asked->question, options.algorithm, asked->setting);
  if (!answer) return usage_error("explain", answer.status());
  if (options.is_json) {
    fmt::print("{}\n", to_json(*asked, *answer).dump(1));
  } else {
    print_text(*asked, *answer);
  }
  return 0;
}

}  // namespace tutti::tool
