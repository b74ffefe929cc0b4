// Reads the settings of a world. Knows no rank.
#include "runtime/group/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "runtime/group/cache_limits.hpp"
#include "runtime/group/rule_settings.hpp"
#include "runtime/record/rank_file.hpp"
#include "topology/discovery.hpp"

namespace tutti {
namespace {

Status read_duration(const Environment& environment, std::string_view name,
                     std::chrono::milliseconds& value) {
  const auto duration = get_duration(environment, name);
  if (!duration) return duration.status();
  if (*duration) value = std::chrono::ceil<std::chrono::milliseconds>(**duration);
  return {};
}

Status read_rules(const Environment& environment, WorldSettings& settings) {
  auto rules = read_rule_settings(environment, settings.contract);
  if (!rules) return rules.status();
  settings.rules = *std::move(rules);
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
  for (const auto& [rank_count, fusion] : settings.tuning.tuning.fusion)
    settings.contract.emplace_back(
        fmt::format("what the file of TUTTI_TUNING_FILE says of fusion on {} ranks", rank_count),
        fmt::format("{} bytes, {} us", fusion.bytes, fusion.cycle_us));
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

Result<std::vector<std::string>> read_transport_names(const Environment& environment) {
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

Status read_limits(const Environment& environment, WorldSettings& settings) {
  TUTTI_RETURN_IF_ERROR(read_duration(environment, "TUTTI_TIMEOUT", settings.timeout));
  TUTTI_RETURN_IF_ERROR(read_duration(environment, "TUTTI_STALL_WARNING", settings.stall_warning));
  const auto check = get_enum(environment, "TUTTI_CHECK");
  if (!check) return check.status();
  settings.check = *check == "off"     ? CheckLevel::off
                   : *check == "group" ? CheckLevel::group
                                       : CheckLevel::local;
  settings.contract.emplace_back("TUTTI_CHECK", *check);
  return {};
}

Status read_transports(const Environment& environment, WorldSettings& settings) {
  settings.contract.emplace_back("TUTTI_TRANSPORTS", environment.find("TUTTI_TRANSPORTS").value_or("auto"));
  auto names = read_transport_names(environment);
  if (!names) return names.status();
  settings.transports = *std::move(names);
  auto transport = read_transport_settings(environment);
  if (!transport) return transport.status();
  settings.transport = *std::move(transport);
  settings.contract.emplace_back("TUTTI_WIRE_SECURITY", to_string(settings.transport.security));
  return {};
}

Status read_control_blocks(const Environment& environment, WorldSettings& settings) {
  const auto control_blocks = get_flag(environment, "TUTTI_CONTROL_BLOCKS");
  if (!control_blocks) return control_blocks.status();
  settings.uses_control_blocks = *control_blocks;
  settings.contract.emplace_back("TUTTI_CONTROL_BLOCKS", *control_blocks ? "on" : "off");
  const auto staging = get_enum(environment, "TUTTI_STAGING");
  if (!staging) return staging.status();
  settings.staging = *staging == "cached"     ? StagingPolicy::cached
                     : *staging == "streamed" ? StagingPolicy::streamed
                                              : StagingPolicy::measured;
  return {};
}

Status read_progress(const Environment& environment, WorldSettings& settings) {
  auto progress = read_progress_settings(environment);
  if (!progress) return progress.status();
  settings.progress = *std::move(progress);
  const auto helpers = read_helper_settings(environment);
  if (!helpers) return helpers.status();
  settings.helpers = *helpers;
  return {};
}

Status read_tensors(const Environment& environment, WorldSettings& settings) {
  auto tensors = read_tensor_settings(environment, settings.contract);
  if (!tensors) return tensors.status();
  settings.tensors = *std::move(tensors);
  return {};
}

Status read_topology(const Environment& environment, WorldSettings& settings) {
  auto topology =
      discover_topology(environment, settings.pin.needs_devices() ? Devices::find : Devices::skip);
  if (!topology) return topology.status();
  settings.topology = *std::move(topology);
  if (settings.pin.policy != PinPolicy::off && !settings.topology.is_this_machine)
    return invalid_argument(fmt::format("TUTTI_PIN: nobody can be bound by {}, which is not this machine",
                                        settings.topology.source));
  settings.contract.emplace_back("the table of caches (TUTTI_TOPOLOGY, else the machine's)",
                                 describe(caches_of(settings.topology)));
  return {};
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

Status read_recorder(const Environment& environment, WorldSettings& settings) {
  const auto text = get_text(environment, "TUTTI_RECORDER");
  if (!text) return text.status();
  const auto statistics = get_flag(environment, "TUTTI_STATS");
  if (!statistics) return statistics.status();
  settings.prints_statistics = *statistics;
  settings.metrics_path = std::string(environment.find("TUTTI_METRICS").value_or(""));
  const std::string value = text->value_or("auto");
  if (value == "off") {
    const std::string_view needs = settings.prints_statistics       ? "TUTTI_STATS"
                                   : !settings.metrics_path.empty() ? "TUTTI_METRICS"
                                                                    : "";
    if (needs.empty()) return {};
    return invalid_argument(
        fmt::format("TUTTI_RECORDER='off': {} reads the records of all ranks, and needs "
                    "auto or a folder",
                    needs));
  }
  settings.is_record_folder_named = value != "auto";
  settings.record_folder = settings.is_record_folder_named
                               ? value
                               : record::default_folder(environment.find("TMPDIR").value_or(""));
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
  const auto security = read_wire_security(environment);
  if (!security) return security.status();
  settings.security = *security;
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

Result<WorldSettings> read_settings(const Environment& environment) {
  TUTTI_RETURN_IF_ERROR(check_values(environment));
  WorldSettings settings;
  // In the order of the contract, whose first difference is the one that an error names.
  for (const auto read :
       {read_limits, read_transports, read_control_blocks, read_pin, read_progress, read_tensors, read_wire,
        read_topology, read_hierarchy, read_waiting, read_recorder, read_rules, read_tuning})
    TUTTI_RETURN_IF_ERROR(read(environment, settings));
  settings.trace_path = std::string(environment.find("TUTTI_TRACE").value_or(""));
  settings.error_path = std::string(environment.find("TUTTI_ERROR_FILE").value_or(""));
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

}  // namespace tutti
