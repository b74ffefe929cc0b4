// Reads the settings of a world. Knows no rank.
#include "runtime/group/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <chrono>

#include "runtime/base/ascii.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/relax.hpp"
#include "runtime/group/cache_limits.hpp"
#include "topology/discovery.hpp"

namespace tutti {
namespace {

constexpr std::uint32_t kOutnumberedSpins = 2;
// Some 10 us on control blocks: longer than a rank that runs takes to answer, and short beside a turn on a CPU.
constexpr std::uint32_t kPollsPerYield = 1024;
constexpr std::uint32_t kMostWorkers = 64;

// A pause takes 5 to 50 ns, depending on the processor.
double measure_pauses_per_ns() {
  constexpr int kRounds = 3, kPauses = 256;
  double least_ns = 50;
  for (int round = 0; round < kRounds; ++round) {
    const SteadyClock::time_point begun = SteadyClock::now();
    for (int i = 0; i < kPauses; ++i) relax();
    const std::chrono::duration<double, std::nano> took = SteadyClock::now() - begun;
    least_ns = std::min(least_ns, took.count() / kPauses);
  }
  return 1 / std::max(least_ns, 1.0);
}

std::string variable_of(std::string_view prefix, Collective collective) {
  return std::string(prefix) + to_upper(to_string(collective));
}

Status read_duration(const Environment& environment, std::string_view name,
                     std::chrono::milliseconds& value) {
  const auto duration = get_duration(environment, name);
  if (!duration) return duration.status();
  if (*duration) value = std::chrono::ceil<std::chrono::milliseconds>(**duration);
  return {};
}

// Intel MPI's variables are for another library: one that has no equivalent here causes a warning, not a
// failed start.
void add_intel_rule(const Environment& environment, Collective collective, std::vector<RuleText>& texts) {
  std::string name = variable_of("I_MPI_ADJUST_", collective);
  auto text = environment.find(name);
  if (!text && collective == Collective::broadcast) text = environment.find(name = "I_MPI_ADJUST_BCAST");
  if (!text) return;
  RuleText rule{collective, std::move(name), std::string(*text)};
  const Result<Selector> probe = Selector::make({rule});
  if (probe) {
    texts.push_back(std::move(rule));
  } else {
    log_warn("ignored: {}", probe.status().message());
  }
}

// Warns about variables of Intel MPI without an equivalent here, such as I_MPI_ADJUST_REDUCE_SCATTER_BLOCK.
void warn_of_other_intel_rules(const Environment& environment) {
  constexpr std::string_view kPrefix = "I_MPI_ADJUST_";
  const auto is_known = [&](std::string_view name) {
    if (name == "I_MPI_ADJUST_BCAST") return true;
    for (int i = 0; i < kCollectiveCount; ++i) {
      const auto collective = static_cast<Collective>(i);
      if (collective != Collective::send_recv && name == variable_of(kPrefix, collective)) return true;
    }
    return false;
  };
  std::string ignored;
  for (const auto& [name, value] : environment.values()) {
    if (name.starts_with(kPrefix) && !is_known(name)) ignored += (ignored.empty() ? "" : ", ") + name;
  }
  if (!ignored.empty())
    log_warn("ignored: {}: there is no such collective here; docs/choosing.md lists those of I_MPI_ADJUST",
             ignored);
}

// Every rule text that is in force goes into the contract: two ranks with different rules would choose
// differently.
Status read_rules(const Environment& environment, WorldSettings& settings) {
  std::vector<RuleText>& texts = settings.rules;
  for (int i = 0; i < kCollectiveCount; ++i) {
    const auto collective = static_cast<Collective>(i);
    if (collective == Collective::send_recv) continue;
    const std::string name = variable_of("TUTTI_ADJUST_", collective);
    const auto text = get_text(environment, name);
    if (!text) return text.status();
    settings.contract.emplace_back(name, text->value_or("auto"));
    if (*text) texts.push_back(RuleText{collective, name, **text});
    add_intel_rule(environment, collective, texts);
    if (!texts.empty() && texts.back().collective == collective && texts.back().source != name) {
      settings.contract.emplace_back(variable_of("I_MPI_ADJUST_", collective), texts.back().text);
    }
  }
  warn_of_other_intel_rules(environment);
  return {};
}

// Rules of variables come before those of the tuning file. Only a file that the user named must be equal on
// all ranks. The ranks agree later whether a file at the default path is used.
Status read_tuning(const Environment& environment, WorldSettings& settings) {
  auto file = load_tuning(environment, fingerprint_of(settings.topology));
  if (!file) return file.status();
  settings.tuning = *std::move(file);
  if (!settings.tuning.is_named) return {};
  for (const RuleText& rule : rule_texts(settings.tuning.tuning, ""))
    settings.contract.emplace_back(
        fmt::format("what the file of TUTTI_TUNING_FILE says of {}{}{}", to_string(rule.collective),
                    rule.reach ? " " : "", rule.reach ? to_string(*rule.reach) : ""),
        rule.text);
  return {};
}

Status make_selector(WorldSettings& settings) {
  std::vector<RuleText> texts = settings.rules;
  for (RuleText& rule : rule_texts(settings.tuning.tuning, settings.tuning.path))
    texts.push_back(std::move(rule));
  Result<Selector> selector = Selector::make(std::move(texts));
  if (!selector) return selector.status();
  settings.selector = std::make_unique<Selector>(*std::move(selector));
  return {};
}

Result<std::vector<std::string>> read_transports(const Environment& environment) {
  std::vector<std::string> names;
  const auto text = get_text(environment, "TUTTI_TRANSPORTS");
  if (!text) return text.status();
  if (!*text || **text == "auto") return names;
  std::string known;
  for (const TransportEntry& entry : transport_entries()) known += fmt::format(" {}", entry.name);
  std::string_view rest = **text;
  for (;;) {
    const std::size_t comma = rest.find(',');
    const std::string name(rest.substr(0, comma));
    const auto entries = transport_entries();
    if (std::none_of(entries.begin(), entries.end(),
                     [&](const TransportEntry& e) { return e.name == name; })) {
      return invalid_argument(
          fmt::format("TUTTI_TRANSPORTS='{}': there is no transport '{}'; expected auto or some of{}, "
                      "separated by commas",
                      **text, name, known));
    }
    names.push_back(name);
    if (comma == std::string_view::npos) return names;
    rest.remove_prefix(comma + 1);
  }
}

Status read_hierarchy(const Environment& environment, WorldSettings& settings) {
  const auto text = get_text(environment, "TUTTI_HIERARCHY");
  if (!text) return text.status();
  const std::string value = text->value_or("auto");
  auto parsed = parse_hierarchy(value);
  if (!parsed) return parsed.status().with_context(fmt::format("TUTTI_HIERARCHY='{}'", value));
  settings.hierarchy = *std::move(parsed);
  settings.contract.emplace_back("TUTTI_HIERARCHY", value);
  return {};
}

Status read_wire(const Environment& environment, WorldSettings& settings) {
  const auto text = get_text(environment, "TUTTI_WIRE_DTYPE");
  if (!text) return text.status();
  auto wire = parse_wire_setting(text->value_or("none"));
  if (!wire) return wire.status().with_context("TUTTI_WIRE_DTYPE");
  settings.wire = *wire;
  settings.contract.emplace_back("TUTTI_WIRE_DTYPE", to_text(settings.wire));
  return {};
}

Status read_pin(const Environment& environment, WorldSettings& settings) {
  const auto text = get_text(environment, "TUTTI_PIN");
  if (!text) return text.status();
  const std::string value = text->value_or("off");
  auto request = parse_pin(value);
  if (!request) return request.status().with_context("TUTTI_PIN");
  const auto order = get_enum(environment, "TUTTI_PIN_ORDER");
  if (!order) return order.status();
  settings.pin = *std::move(request);
  settings.pin.order = *order == "scatter" ? PinOrder::scatter : PinOrder::compact;
  settings.contract.emplace_back("TUTTI_PIN", value);
  settings.contract.emplace_back("TUTTI_PIN_ORDER", *order);
  return {};
}

Status read_waiting(const Environment& environment, WorldSettings& settings) {
  const auto mode = get_enum(environment, "TUTTI_WAIT");
  if (!mode) return mode.status();
  settings.wait_mode = *mode;
  const auto spins = get_integer(environment, "TUTTI_SPIN");
  if (!spins) return spins.status();
  settings.spin_polls = *spins;
  return {};
}

}  // namespace

Result<TransportSettings> read_transport_settings(const Environment& environment) {
  TransportSettings settings;
  const auto bytes = get_size(environment, "TUTTI_SHM_BYTES");
  if (!bytes) return bytes.status();
  if (*bytes) settings.memory.staging_bytes = **bytes;
  const auto single_copy = get_enum(environment, "TUTTI_SINGLE_COPY");
  if (!single_copy) return single_copy.status();
  settings.memory.single_copy = *single_copy == "on"    ? SingleCopy::on
                                : *single_copy == "off" ? SingleCopy::off
                                                        : SingleCopy::automatic;
  auto ports = read_ports(environment);
  if (!ports) return ports.status();
  settings.ports = *ports;
  settings.node_id = std::string(environment.find("TUTTI_NODE_ID").value_or(""));
  const auto provider = get_text(environment, "TUTTI_OFI_PROVIDER");
  if (!provider) return provider.status();
  if (*provider && **provider != "auto") settings.ofi_provider = **provider;
  settings.module_path = std::string(environment.find("TUTTI_MODULE_PATH").value_or(""));
  return settings;
}

// Our own setting, else a variable of MLSL, whose mistakes only cause a warning.
Result<WorkerSettings> read_worker_settings(const Environment& environment) {
  WorkerSettings settings;
  const auto count = get_integer(environment, "TUTTI_WORKERS");
  if (!count) return count.status();
  settings.count = static_cast<std::uint32_t>(std::min<std::int64_t>(count->value_or(1), kMostWorkers));
  if (const auto servers = environment.find("MLSL_NUM_SERVERS");
      servers && !environment.find("TUTTI_WORKERS")) {
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(servers->data(), servers->data() + servers->size(), number);
    if (error == std::errc() && end == servers->data() + servers->size() && number <= kMostWorkers) {
      settings.count = number;
    } else {
      log_warn("ignored: MLSL_NUM_SERVERS='{}': expected a number from 0 to {}", *servers, kMostWorkers);
    }
  }
  const auto text = get_text(environment, "TUTTI_WORKER_AFFINITY");
  if (!text) return text.status();
  if (*text) {
    auto cpus = parse_worker_cpus(**text);
    if (!cpus) return cpus.status().with_context("TUTTI_WORKER_AFFINITY");
    settings.cpus = *std::move(cpus);
  } else if (const auto servers = environment.find("MLSL_SERVER_AFFINITY")) {
    auto cpus = parse_worker_cpus(*servers);
    if (cpus) {
      settings.cpus = *std::move(cpus);
    } else {
      log_warn("ignored: MLSL_SERVER_AFFINITY: {}", cpus.status().message());
    }
  }
  return settings;
}

Result<WorldSettings> read_settings(const Environment& environment) {
  TUTTI_RETURN_IF_ERROR(check_values(environment));
  WorldSettings settings;
  TUTTI_RETURN_IF_ERROR(read_duration(environment, "TUTTI_TIMEOUT", settings.timeout));
  TUTTI_RETURN_IF_ERROR(read_duration(environment, "TUTTI_STALL_WARNING", settings.stall_warning));
  const auto check = get_enum(environment, "TUTTI_CHECK");
  if (!check) return check.status();
  settings.check = *check == "off"     ? CheckLevel::off
                   : *check == "group" ? CheckLevel::group
                                       : CheckLevel::local;
  settings.contract.emplace_back("TUTTI_CHECK", *check);
  settings.contract.emplace_back("TUTTI_TRANSPORTS", environment.find("TUTTI_TRANSPORTS").value_or("auto"));
  auto transports = read_transports(environment);
  if (!transports) return transports.status();
  settings.transports = *std::move(transports);
  auto transport = read_transport_settings(environment);
  if (!transport) return transport.status();
  settings.transport = *std::move(transport);
  const auto control_blocks = get_flag(environment, "TUTTI_CONTROL_BLOCKS");
  if (!control_blocks) return control_blocks.status();
  settings.uses_control_blocks = *control_blocks;
  settings.contract.emplace_back("TUTTI_CONTROL_BLOCKS", *control_blocks ? "on" : "off");
  const auto staging = get_enum(environment, "TUTTI_STAGING");
  if (!staging) return staging.status();
  settings.staging = *staging == "cached"     ? StagingPolicy::cached
                     : *staging == "streamed" ? StagingPolicy::streamed
                                              : StagingPolicy::measured;
  TUTTI_RETURN_IF_ERROR(read_pin(environment, settings));
  auto workers = read_worker_settings(environment);
  if (!workers) return workers.status();
  settings.workers = *std::move(workers);
  auto tensors = read_tensor_settings(environment, settings.contract);
  if (!tensors) return tensors.status();
  settings.tensors = *std::move(tensors);
  auto topology =
      discover_topology(environment, settings.pin.needs_devices() ? Devices::find : Devices::skip);
  if (!topology) return topology.status();
  settings.topology = *std::move(topology);
  if (settings.pin.policy != PinPolicy::off && !settings.topology.is_this_machine)
    return invalid_argument(fmt::format("TUTTI_PIN: nobody can be bound by {}, which is not this machine",
                                        settings.topology.source));
  settings.contract.emplace_back("the table of caches (TUTTI_TOPOLOGY, else the machine's)",
                                 describe(caches_of(settings.topology)));
  TUTTI_RETURN_IF_ERROR(read_hierarchy(environment, settings));
  TUTTI_RETURN_IF_ERROR(read_wire(environment, settings));
  settings.trace_path = std::string(environment.find("TUTTI_TRACE").value_or(""));
  TUTTI_RETURN_IF_ERROR(read_waiting(environment, settings));
  TUTTI_RETURN_IF_ERROR(read_rules(environment, settings));
  TUTTI_RETURN_IF_ERROR(read_tuning(environment, settings));
  TUTTI_RETURN_IF_ERROR(make_selector(settings));
  return settings;
}

void WorldSettings::refuse_tuning(std::string reason) {
  tuning.refuse(std::move(reason));
  const Status status = make_selector(*this);
  TUTTI_ASSERT(status.is_ok(), "rules that were parsed before");
}

Status WorldSettings::judge_tuning(const Fingerprint& here) {
  if (!tuning.is_used()) return {};
  const std::string difference = describe_difference(tuning.tuning.fingerprint, here);
  if (difference.empty()) return {};
  std::string reason = fmt::format("{}: {}", tuning.path, difference);
  if (tuning.is_named) return invalid_argument(std::move(reason)).with_context("TUTTI_TUNING_FILE");
  refuse_tuning(std::move(reason));
  return {};
}

WaitPolicy WorldSettings::wait_policy(int rank_count, int cpu_count, bool is_poll_call) const {
  WaitPolicy policy;
  if (rank_count > cpu_count) {
    policy.spin_polls = is_poll_call ? 0 : kOutnumberedSpins;
    policy.line_polls = 1;
  } else if (!spin_polls) {
    policy.polls_per_yield = kPollsPerYield;
  }
  policy.watches_cpus = rank_count <= cpu_count && wait_mode == "auto";
  if (wait_mode == "spin") policy = {~0U, 0, false};
  if (wait_mode == "yield") policy = {0, ~0U, false};
  if (wait_mode == "sleep") policy = {0, 0, true};
  if (wait_mode == "yield" || wait_mode == "sleep") policy.line_polls = 1;
  if (!policy.shares_cpus()) {
    static const double kPausesPerNs = measure_pauses_per_ns();
    policy.pauses_per_ns = kPausesPerNs;
  }
  if (spin_polls)
    policy.spin_polls = static_cast<std::uint32_t>(std::clamp<std::int64_t>(*spin_polls, 0, 1 << 30));
  return policy;
}

}  // namespace tutti
