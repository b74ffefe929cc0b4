// The flags of horovodrun: each sets what it sets there, or is answered. Knows no process; see flags.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <optional>

#include "runtime/base/ascii.hpp"
#include "runtime/base/horovod_variables.hpp"
#include "tools/cli/run/flags.hpp"

namespace tutti {
namespace {

constexpr int kMostSeconds = 86400;

Status say(RunOptions& options, const RunFlag& flag, std::string_view) {
  options.answers.push_back(fmt::format("{}: {}", first_name(flag), meaning_of(flag)));
  return {};
}

// Ranks find the value where horovodrun's would: in Horovod's variable.
Status export_value(RunOptions& options, const RunFlag& flag, std::string_view value) {
  const HorovodVariable& variable = *find_horovod_variable(flag.variable);
  if (variable.use == HorovodUse::no_effect) return say(options, flag, value);
  TUTTI_RETURN_IF_ERROR(translate_horovod_value(variable, value).status());
  options.exported.push_back({std::string(variable.name), std::string(value)});
  return {};
}

Status export_megabytes(RunOptions& options, const RunFlag& flag, std::string_view value) {
  const auto megabytes = parse_number<std::uint64_t>(value);
  if (!megabytes || *megabytes >> 44U != 0) return invalid_argument("expected a whole number of MiB");
  return export_value(options, flag, std::to_string(*megabytes << 20U));
}

// May be given several times.
Status add_interfaces(RunOptions& options, const RunFlag& flag, std::string_view value) {
  for (ExportedVariable& variable : options.exported) {
    if (variable.name != flag.variable) continue;
    variable.value += fmt::format(",{}", value);
    return {};
  }
  return export_value(options, flag, value);
}

Status use_tcp(RunOptions& options, const RunFlag&, std::string_view) {
  options.exported.push_back({"NCCL_IB_DISABLE", "1"});
  options.exported.push_back({"TUTTI_TRANSPORTS", "shm,tcp"});
  return {};
}

Result<int> parse_whole(std::string_view text, int low, int high, std::string_view what) {
  const auto number = parse_number<int>(text);
  if (number && *number >= low && *number <= high) return *number;
  return invalid_argument(fmt::format("expected {} from {} to {}, got '{}'", what, low, high, text));
}

// Stores a number from 1 to `most`.
template <class Target>
Status take_whole(Target& into, std::string_view text, int most, std::string_view what) {
  const auto number = parse_whole(text, 1, most, what);
  if (!number) return number.status();
  into = Target(*number);
  return {};
}

template <int ElasticLimits::*Member>
Status set_rank_bound(RunOptions& options, const RunFlag&, std::string_view value) {
  return take_whole(options.elastic.*Member, value, kMostJobRanks, "a number of ranks");
}

Status set_reset_limit(RunOptions& options, const RunFlag&, std::string_view value) {
  return take_whole(options.elastic.reset_limit, value, 1000000, "a number");
}

Status set_elastic_timeout(RunOptions& options, const RunFlag&, std::string_view value) {
  return take_whole(options.elastic.timeout, value, kMostSeconds, "seconds");
}

Status set_cooldown(RunOptions& options, const RunFlag&, std::string_view value) {
  const std::size_t blank = value.find(' ');
  const auto shortest = parse_whole(value.substr(0, blank), 1, kMostSeconds, "two numbers of seconds");
  if (!shortest) return shortest.status();
  const auto longest = parse_whole(blank == std::string_view::npos ? "" : value.substr(blank + 1), *shortest,
                                   kMostSeconds, "the second number of seconds");
  if (!longest) return longest.status();
  options.elastic.cooldown = {*shortest, *longest};
  return {};
}

Status set_slots_per_host(RunOptions& options, const RunFlag&, std::string_view value) {
  return take_whole(options.slots_per_host, value, 65536, "a number of ranks");
}

Status set_discovery_script(RunOptions& options, const RunFlag&, std::string_view value) {
  if (value.empty()) return invalid_argument("expected a command");
  options.discovery_script = value;
  options.elastic.discovers_hosts = true;
  return {};
}

Status set_start_timeout(RunOptions& options, const RunFlag&, std::string_view value) {
  return take_whole(options.ssh_connect_seconds, value, kMostSeconds, "seconds");
}

Status set_ssh_port(RunOptions& options, const RunFlag&, std::string_view value) {
  return take_whole(options.ssh_port, value, 65535, "a port");
}

template <std::string RunOptions::*Member>
Status set_text(RunOptions& options, const RunFlag&, std::string_view value) {
  if (value.empty()) return invalid_argument("expected a path");
  options.*Member = value;
  return {};
}

constexpr RunFlag exported(std::string_view names, std::string_view variable,
                           std::string_view config_key = {}) {
  return {names, 1, export_value, {}, variable, {}, config_key};
}
constexpr RunFlag switched(std::string_view names, std::string_view variable, std::string_view preset,
                           std::string_view config_key) {
  return {names, 0, export_value, {}, variable, preset, config_key};
}
constexpr RunFlag answered(std::string_view names, int value_count, std::string_view meaning,
                           std::string_view config_key = {}) {
  return {names, value_count, say, meaning, {}, {}, config_key};
}
constexpr RunFlag kHorovodFlags[] = {
    {"--fusion-threshold-mb",
     1,
     export_megabytes,
     "MiB of one operation that carries several tensors; 0: each tensor is its own",
     "HOROVOD_FUSION_THRESHOLD",
     {},
     "params.fusion_threshold_mb"},
    exported("--cycle-time-ms", "HOROVOD_CYCLE_TIME", "params.cycle_time_ms"),
    exported("--cache-capacity", "HOROVOD_CACHE_CAPACITY", "params.cache_capacity"),
    switched("--hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE", "1",
             "params.hierarchical_allreduce"),
    switched("--no-hierarchical-allreduce", "HOROVOD_HIERARCHICAL_ALLREDUCE", "0",
             "params.hierarchical_allreduce"),
    switched("--hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER", "1",
             "params.hierarchical_allgather"),
    switched("--no-hierarchical-allgather", "HOROVOD_HIERARCHICAL_ALLGATHER", "0",
             "params.hierarchical_allgather"),
    switched("--torus-allreduce", "HOROVOD_TORUS_ALLREDUCE", "1", "params.torus_allreduce"),
    switched("--no-torus-allreduce", "HOROVOD_TORUS_ALLREDUCE", "0", "params.torus_allreduce"),
    switched("--autotune", "HOROVOD_AUTOTUNE", "1", "autotune.enabled"),
    switched("--no-autotune", "HOROVOD_AUTOTUNE", "0", "autotune.enabled"),
    exported("--autotune-log-file", "HOROVOD_AUTOTUNE_LOG", "autotune.log_file"),
    exported("--autotune-warmup-samples", "HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "autotune.warmup_samples"),
    exported("--autotune-steps-per-sample", "HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "autotune.steps_per_sample"),
    exported("--autotune-bayes-opt-max-samples", "HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES",
             "autotune.bayes_opt_max_samples"),
    exported("--autotune-gaussian-process-noise", "HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE",
             "autotune.gaussian_process_noise"),
    exported("--timeline-filename", "HOROVOD_TIMELINE", "timeline.filename"),
    switched("--timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "1", "timeline.mark_cycles"),
    switched("--no-timeline-mark-cycles", "HOROVOD_TIMELINE_MARK_CYCLES", "0", "timeline.mark_cycles"),
    switched("--stall-check", "HOROVOD_STALL_CHECK_DISABLE", "0", "stall_check.enabled"),
    switched("--no-stall-check", "HOROVOD_STALL_CHECK_DISABLE", "1", "stall_check.enabled"),
    exported("--stall-check-warning-time-seconds", "HOROVOD_STALL_CHECK_TIME_SECONDS",
             "stall_check.warning_time_seconds"),
    exported("--stall-check-shutdown-time-seconds", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS",
             "stall_check.shutdown_time_seconds"),
    switched("--mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE", "1",
             "library_options.mpi_threads_disable"),
    switched("--no-mpi-threads-disable", "HOROVOD_MPI_THREADS_DISABLE", "0",
             "library_options.mpi_threads_disable"),
    exported("--num-nccl-streams", "HOROVOD_NUM_NCCL_STREAMS", "library_options.num_nccl_streams"),
    exported("--thread-affinity", "HOROVOD_THREAD_AFFINITY", "library_options.thread_affinity"),
    exported("--gloo-timeout-seconds", "HOROVOD_GLOO_TIMEOUT_SECONDS",
             "library_options.gloo_timeout_seconds"),
    exported("--log-level", "HOROVOD_LOG_LEVEL", "logging.level"),
    switched("--log-with-timestamp --no-log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME", "0",
             "logging.with_timestamp"),
    switched("--log-without-timestamp --log-hide-timestamp", "HOROVOD_LOG_HIDE_TIME", "1",
             "logging.with_timestamp"),
    {"--network-interfaces --network-interface", 1, add_interfaces, {}, "HOROVOD_GLOO_IFACE"},
    {"--tcp", 0, use_tcp, "between hosts only TCP: TUTTI_TRANSPORTS=shm,tcp and NCCL_IB_DISABLE=1"},
    {"--output-filename", 1, set_text<&RunOptions::output_folder>,
     "a folder that gets rank.N/stdout and rank.N/stderr beside what is shown; on each host"},
    {"--prefix-output-with-timestamp -prefix-timestamp --prefix-timestamp", 0,
     set_flag<&RunOptions::has_times>, "the local time before each line of output"},
    {"--verbose", 0, set_flag<&RunOptions::is_verbose>,
     "says on standard error which variables ranks get from flags, and the processes of the ranks"},
    {"--start-timeout", 1, set_start_timeout,
     "seconds that a host may take to answer ssh; ranks wait for each other as TUTTI_TIMEOUT says"},
    {"-p --ssh-port", 1, set_ssh_port, "port of ssh on all hosts"},
    {"-i --ssh-identity-file", 1, set_text<&RunOptions::ssh_identity>, "the private key for ssh"},
    {"--config-file", 1, set_text<&RunOptions::config_path>,
     "a YAML file of Horovod's form; flags of the command line win"},
    {"--check-build -cb", 0, set_flag<&RunOptions::wants_check_build>,
     "shows which frameworks and operations there are"},
    {"--version -v", 0, set_flag<&RunOptions::wants_version>, "shows the version"},
    {"--min-np --min-num-proc", 1, set_rank_bound<&ElasticLimits::min_ranks>,
     "the job goes on without ranks that fail as long as so many are left; others are started for them"},
    {"--max-np --max-num-proc", 1, set_rank_bound<&ElasticLimits::max_ranks>,
     "the job has up to so many ranks where there are slots (default: -np)"},
    {"--host-discovery-script", 1, set_discovery_script,
     "a command that prints host:slots in each line; it is asked every second"},
    {"--slots-per-host", 1, set_slots_per_host,
     "of hosts that the script prints without a number (default: 1)"},
    {"--elastic-timeout", 1, set_elastic_timeout,
     "seconds with fewer ranks than --min-np after which the job ends (default: 600)",
     "HOROVOD_ELASTIC_TIMEOUT"},
    {"--reset-limit", 1, set_reset_limit, "how often ranks may change; then the job ends"},
    {"--blacklist-cooldown-range", 2, set_cooldown,
     "two numbers of seconds: a host where a new rank failed to join is tried again, at ever longer pauses "
     "between "
     "them (default: never)"},
    answered("--gloo", 0, "no effect: tutti needs no Gloo", "controller"),
    answered("--mpi", 0, "no effect: tutti needs no MPI; --through mpiexec starts ranks with it",
             "controller"),
    answered("--jsrun", 0, "no effect: ranks are started by ssh, srun or mpiexec, as --through says"),
    answered("--mpi-args", 1, "no effect: mpirun is not called; -x sets variables, --bind binds ranks"),
    answered("--binding-args", 1, "no effect: mpirun is not called; --bind binds ranks"),
    answered("--disable-cache", 0, "no effect: no check before the start is remembered"),
};

// In a file, `false` stands for it.
bool is_negative(const RunFlag& flag) {
  return flag.names.starts_with("--no-") || flag.names.starts_with("--log-without-");
}

std::optional<bool> parse_yes(std::string_view text) {
  const std::string lower = to_lower(text);
  if (lower == "true" || lower == "yes" || lower == "on" || lower == "1") return true;
  if (lower == "false" || lower == "no" || lower == "off" || lower == "0") return false;
  return std::nullopt;
}

// "HOROVOD_CYCLE_TIME", "HOROVOD_AUTOTUNE=1"; empty: ranks get nothing from it.
std::string set_variable_of(const RunFlag& flag) {
  const HorovodVariable* const variable = find_horovod_variable(flag.variable);
  if (variable == nullptr || variable->use == HorovodUse::no_effect) return {};
  return flag.value_count > 0 ? std::string(flag.variable) : fmt::format("{}={}", flag.variable, flag.preset);
}

}  // namespace

std::string_view first_name(const RunFlag& flag) { return flag.names.substr(0, flag.names.find(' ')); }

std::string_view meaning_of(const RunFlag& flag) {
  return flag.meaning.empty() ? find_horovod_variable(flag.variable)->meaning : flag.meaning;
}

std::span<const RunFlag> horovod_flags() { return kHorovodFlags; }

Result<ConfiguredFlag> find_configured_flag(std::string_view key, std::string_view value) {
  const std::optional<bool> is_yes = parse_yes(value);
  const std::string controller = fmt::format("--{}", to_lower(value));
  std::string_view expectation;
  for (const RunFlag& flag : kHorovodFlags) {
    if (flag.config_key != key) continue;
    if (key == "controller") {
      expectation = "expected gloo or mpi";
      if (flag.names == controller) return ConfiguredFlag{&flag, {}};
    } else if (flag.value_count > 0) {
      return ConfiguredFlag{&flag, std::string(value)};
    } else {
      expectation = "expected true or false";
      if (is_yes && *is_yes != is_negative(flag)) return ConfiguredFlag{&flag, std::string(flag.preset)};
    }
  }
  if (!expectation.empty()) return invalid_argument(std::string(expectation));
  return ConfiguredFlag();
}

std::string describe_horovod_flags() {
  std::string text;
  for (const RunFlag& flag : kHorovodFlags) {
    std::string names(flag.names);
    std::replace(names.begin(), names.end(), ' ', ',');
    const std::string variable = set_variable_of(flag);
    text += fmt::format("  {}{}\n                     {}{}\n", names, flag.value_count > 0 ? " VALUE" : "",
                        meaning_of(flag), variable.empty() ? "" : fmt::format(" ({})", variable));
  }
  return text;
}

std::string describe_horovod_flags_markdown() {
  std::string page = "| flag | sets | meaning |\n|---|---|---|\n";
  for (const RunFlag& flag : kHorovodFlags) {
    std::string names;
    for_each_name(flag, [&](std::string_view name) {
      names += fmt::format("{}`{}`", names.empty() ? "" : ", ", name);
    });
    const std::string variable = set_variable_of(flag);
    page += fmt::format("| {} | {} | {} |\n", names, variable.empty() ? "" : fmt::format("`{}`", variable),
                        meaning_of(flag));
  }
  return page;
}

}  // namespace tutti
