// The table of Horovod's variables, and the translation of those that set one of ours. See
// horovod_variables.hpp.
#include "runtime/base/horovod_variables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/base/ascii.hpp"

namespace tutti {
namespace {

using enum HorovodSyntax;

constexpr std::string_view kPlace =
    "set for each rank by `tutti horovodrun`, and read under Horovod's own horovodrun";
constexpr std::string_view kMeeting = "set by Horovod's own horovodrun with Gloo: where its ranks meet";
constexpr std::string_view kHierarchical =
    "no effect: each call takes a hierarchical algorithm where that is predicted to be faster; "
    "TUTTI_ADJUST_* names "
    "one";
constexpr std::string_view kAutotune = "no effect: TUTTI_AUTOTUNE tries a list of values, each over 40 steps";
constexpr std::string_view kOwnEngine = "no effect: operations and negotiation are tutti's own";
constexpr std::string_view kInstaller =
    "no effect: Horovod's installer reads it; `pip install` of tutti needs none";
constexpr std::string_view kGpuCopies = "no effect: it is about Horovod's own handling of GPU buffers";

constexpr HorovodVariable setting(std::string_view name, std::string_view default_text, std::string_view ours,
                                  HorovodSyntax syntax, std::string_view meaning) {
  return {name, HorovodUse::setting, default_text, meaning, ours, syntax};
}
constexpr HorovodVariable launch(std::string_view name, std::string_view default_text,
                                 std::string_view meaning) {
  return {name, HorovodUse::launch, default_text, meaning};
}
constexpr HorovodVariable no_effect(std::string_view name, std::string_view default_text,
                                    std::string_view meaning) {
  return {name, HorovodUse::no_effect, default_text, meaning};
}
constexpr HorovodVariable unneeded(std::string_view name, std::string_view meaning = kInstaller) {
  return {name, HorovodUse::unneeded, "", meaning};
}

// Where two variables give one of ours, the first one that is set wins.
constexpr HorovodVariable kHorovodVariables[] = {
    setting("HOROVOD_FUSION_THRESHOLD", "134217728", "TUTTI_FUSION_BYTES", whole_number,
            "bytes of one operation that carries several tensors; 0: each tensor is its own"),
    setting("HOROVOD_CYCLE_TIME", "1", "TUTTI_FUSION_CYCLE", milliseconds,
            "milliseconds between two negotiations while tensors are under way"),
    setting("HOROVOD_CACHE_CAPACITY", "1024", "TUTTI_CACHE_CAPACITY", whole_number,
            "how many tensors ranks remember to have agreed on; 0: none"),
    setting("HOROVOD_STALL_CHECK_DISABLE", "0", "TUTTI_STALL_WARNING", disabling, "1: no wait is reported"),
    setting("HOROVOD_STALL_CHECK_TIME_SECONDS", "60", "TUTTI_STALL_WARNING", seconds,
            "a tensor that some ranks lack for this long is reported, and any other wait; 0 is never"),
    setting("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "0", "TUTTI_STALL_TIMEOUT", seconds,
            "a tensor that some ranks lack for this long fails on the others; 0 is never"),
    setting("HOROVOD_GLOO_TIMEOUT_SECONDS", "30", "TUTTI_TIMEOUT", seconds,
            "longest wait for a peer before a call fails"),
    setting("HOROVOD_GLOO_IFACE", "", "TUTTI_IFACE", text, "network interfaces to use"),
    setting("HOROVOD_THREAD_AFFINITY", "", "TUTTI_PROGRESS_AFFINITY", cpu_list,
            "CPUs of the threads that carry operations on, by local rank: 0,1,12,13"),
    setting("HOROVOD_LOG_LEVEL", "warning", "TUTTI_LOG", log_level,
            "how much to write to standard error; fatal is read as error"),
    launch("HOROVOD_RANK", "", kPlace),
    launch("HOROVOD_SIZE", "", kPlace),
    launch("HOROVOD_LOCAL_RANK", "", kPlace),
    launch("HOROVOD_LOCAL_SIZE", "", kPlace),
    launch("HOROVOD_CROSS_RANK", "", "set for each rank by `tutti horovodrun`"),
    launch("HOROVOD_CROSS_SIZE", "", "set for each rank by `tutti horovodrun`"),
    launch("HOROVOD_HOSTNAME", "", "set for each rank by `tutti horovodrun`: its host as -H names it"),
    launch("HOROVOD_GLOO_RENDEZVOUS_ADDR", "", kMeeting),
    launch("HOROVOD_GLOO_RENDEZVOUS_PORT", "", kMeeting),
    launch("HOROVOD_START_TIMEOUT", "30",
           "as --start-timeout of `tutti horovodrun`: seconds until a host must answer"),
    setting("HOROVOD_TIMELINE", "", "TUTTI_TIMELINE", timeline,
            "a file that shows each tensor's phases over time; DYNAMIC: none until start_timeline()"),
    setting("HOROVOD_TIMELINE_MARK_CYCLES", "0", "TUTTI_TIMELINE_MARK_CYCLES", enabling,
            "1: the timeline marks the negotiations"),
    no_effect("HOROVOD_HIERARCHICAL_ALLREDUCE", "0", kHierarchical),
    no_effect("HOROVOD_HIERARCHICAL_ALLGATHER", "0", kHierarchical),
    no_effect("HOROVOD_TORUS_ALLREDUCE", "0", kHierarchical),
    setting("HOROVOD_AUTOTUNE", "0", "TUTTI_AUTOTUNE", enabling,
            "1: fusion bytes and cycle are measured while the job trains; the best are used, and written to "
            "the tuning file"),
    setting("HOROVOD_AUTOTUNE_LOG", "", "TUTTI_AUTOTUNE_LOG", text,
            "a file to which rank 0 writes each measurement, as CSV"),
    no_effect("HOROVOD_AUTOTUNE_WARMUP_SAMPLES", "3", kAutotune),
    no_effect("HOROVOD_AUTOTUNE_STEPS_PER_SAMPLE", "10", kAutotune),
    no_effect("HOROVOD_AUTOTUNE_BAYES_OPT_MAX_SAMPLES", "20", kAutotune),
    no_effect("HOROVOD_AUTOTUNE_GAUSSIAN_PROCESS_NOISE", "0.8", kAutotune),
    launch("HOROVOD_ELASTIC", "0", "set to 1 for each rank of an elastic job by `tutti horovodrun`"),
    launch("HOROVOD_ELASTIC_TIMEOUT", "600",
           "as --elastic-timeout of `tutti horovodrun`: seconds that ranks wait for others"),
    unneeded("HOROVOD_CPU_OPERATIONS", kOwnEngine),
    unneeded("HOROVOD_CONTROLLER", kOwnEngine),
    no_effect("HOROVOD_MPI_THREADS_DISABLE", "0", "no effect: tutti calls no MPI"),
    no_effect("HOROVOD_NUM_NCCL_STREAMS", "1", "no effect: tutti gives NCCL streams itself"),
    no_effect("HOROVOD_DYNAMIC_PROCESS_SETS", "0",
              "no effect: process sets can be added and removed without it"),
    no_effect("HOROVOD_DISABLE_GROUP_FUSION", "0",
              "no effect: tensors of a group may share an operation with other tensors"),
    no_effect("HOROVOD_BATCH_D2D_MEMCOPIES", "1", kGpuCopies),
    no_effect("HOROVOD_ENABLE_ASYNC_COMPLETION", "0", kGpuCopies),
    no_effect("HOROVOD_ENABLE_XLA_OPS", "0", "no effect: XLA compiles no operation of tutti"),
    no_effect("HOROVOD_ADASUM_MPI_CHUNK_SIZE", "1073741824", "no effect: Adasum does not go through MPI"),
    no_effect("HOROVOD_DISABLE_NVTX_RANGES", "0", "no effect: tutti writes no NVTX ranges"),
    no_effect("HOROVOD_CCL_CACHE", "0", "no effect: oneCCL is not used"),
    no_effect("HOROVOD_LOG_HIDE_TIME", "0", "no effect: log lines carry no time"),
    unneeded("HOROVOD_WITH_TENSORFLOW"),
    unneeded("HOROVOD_WITHOUT_TENSORFLOW"),
    unneeded("HOROVOD_WITH_PYTORCH"),
    unneeded("HOROVOD_WITHOUT_PYTORCH"),
    unneeded("HOROVOD_WITH_MXNET"),
    unneeded("HOROVOD_WITHOUT_MXNET"),
    unneeded("HOROVOD_WITH_MPI"),
    unneeded("HOROVOD_WITHOUT_MPI"),
    unneeded("HOROVOD_WITH_GLOO"),
    unneeded("HOROVOD_WITHOUT_GLOO"),
    unneeded("HOROVOD_GPU"),
    unneeded("HOROVOD_GPU_OPERATIONS"),
    unneeded("HOROVOD_GPU_ALLREDUCE"),
    unneeded("HOROVOD_GPU_ALLGATHER"),
    unneeded("HOROVOD_GPU_BROADCAST"),
    unneeded("HOROVOD_GPU_ALLTOALL"),
    unneeded("HOROVOD_GPU_REDUCESCATTER"),
    unneeded("HOROVOD_CUDA_HOME"),
    unneeded("HOROVOD_NCCL_HOME"),
    unneeded("HOROVOD_ROCM_HOME"),
    unneeded("HOROVOD_ALLOW_MIXED_GPU_IMPL"),
};

Result<std::string> expected(std::string_view what) {
  return invalid_argument(fmt::format("expected {}", what));
}

Result<std::string> translate_level(std::string_view text) {
  constexpr std::pair<std::string_view, std::string_view> kLevels[] = {
      {"trace", "trace"},  {"debug", "debug"}, {"info", "info"},
      {"warning", "warn"}, {"error", "error"}, {"fatal", "error"}};
  const std::string lower = to_lower(text);
  for (const auto& [theirs, ours] : kLevels) {
    if (lower == theirs) return std::string(ours);
  }
  return expected("trace, debug, info, warning, error or fatal");
}

bool is_cpu_list(std::string_view text) {
  for (;;) {
    const std::size_t comma = text.find(',');
    if (!parse_number<std::uint32_t>(text.substr(0, comma))) return false;
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

std::string cell_of_effect(const HorovodVariable& variable) {
  if (variable.use == HorovodUse::setting) return fmt::format("`{}`", variable.setting);
  return std::string(variable.use == HorovodUse::launch ? "read" : "no effect");
}

Result<std::string> translate_number(HorovodSyntax syntax, std::string_view value) {
  const auto number = parse_number<std::int64_t>(value);
  const bool is_whole = number && *number >= 0;
  switch (syntax) {
    case seconds:
      return is_whole ? fmt::format("{}s", value) : expected("whole seconds");
    case disabling:
      return is_whole ? std::string(*number > 0 ? "0" : "") : expected("0 or 1");
    case enabling:
      return is_whole ? std::string(*number > 0 ? "1" : "0") : expected("0 or 1");
    default:
      return is_whole ? std::string(value) : expected("a whole number");
  }
}

}  // namespace

std::span<const HorovodVariable> horovod_variables() { return kHorovodVariables; }

const HorovodVariable* find_horovod_variable(std::string_view name) {
  const auto found = std::find_if(std::begin(kHorovodVariables), std::end(kHorovodVariables),
                                  [&](const HorovodVariable& variable) { return variable.name == name; });
  return found == std::end(kHorovodVariables) ? nullptr : found;
}

Result<std::string> translate_horovod_value(const HorovodVariable& variable, std::string_view value) {
  switch (variable.syntax) {
    case text:
      return std::string(value);
    case timeline:
      return std::string(value == "DYNAMIC" ? "" : value);
    case cpu_list:
      return is_cpu_list(value) ? std::string(value) : expected("numbers of CPUs such as 0,1,12,13");
    case milliseconds:
      if (std::string text = fmt::format("{}ms", value); parse_duration(text)) return text;
      return expected("milliseconds such as 2.5");
    case log_level:
      return translate_level(value);
    default:
      return translate_number(variable.syntax, value);
  }
}

std::optional<HorovodValue> find_horovod_value(const Environment& environment, std::string_view name) {
  for (const HorovodVariable& variable : kHorovodVariables) {
    if (variable.setting != name) continue;
    const auto set = environment.find(variable.name);
    if (!set) continue;
    Result<std::string> value = translate_horovod_value(variable, *set);
    if (value && !value->empty()) return HorovodValue{variable.name, *std::move(value)};
  }
  return std::nullopt;
}

std::vector<std::string> check_horovod_variables(const Environment& environment) {
  std::vector<std::string> sentences;
  for (const HorovodVariable& variable : kHorovodVariables) {
    const auto value = environment.find(variable.name);
    if (!value || *value == variable.default_text) continue;
    if (variable.use == HorovodUse::no_effect)
      sentences.push_back(fmt::format("{}={} has {}", variable.name, *value, variable.meaning));
    if (const auto translated = translate_horovod_value(variable, *value); !translated)
      sentences.push_back(
          fmt::format("ignored: {}='{}': {}", variable.name, *value, translated.status().message()));
  }
  return sentences;
}

std::string describe_horovod_markdown() {
  std::string page = "| variable | Horovod's default | here | meaning |\n|---|---|---|---|\n";
  for (const HorovodVariable& variable : kHorovodVariables) {
    page += fmt::format("| `{}` | {} | {} | {} |\n", variable.name, variable.default_text,
                        cell_of_effect(variable), variable.meaning);
  }
  return page;
}

}  // namespace tutti
