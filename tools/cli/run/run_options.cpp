// The command line of `tutti run` and `tutti horovodrun`. Knows nothing of how the ranks are started; that is
// job.cpp.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>

#include "runtime/base/ascii.hpp"
#include "runtime/base/horovod_variables.hpp"
#include "tools/cli/run/flags.hpp"
#include "tools/cli/run/horovod_config.hpp"
#include "tools/cli/run/run.hpp"

namespace tutti {
namespace {

struct GivenFlag {
  const RunFlag* flag = nullptr;
  std::string_view name;
  std::optional<std::string_view> value;  // if it is in the word
};

// The flag that this word is or begins with: "--grace", "--grace=2", "-n4".
GivenFlag find_flag(std::string_view word) {
  GivenFlag found;
  const auto try_name = [&](const RunFlag& flag, std::string_view name) {
    if (word == name) {
      found = {&flag, name, {}};
    } else if (found.flag == nullptr && flag.value_count > 0 && word.starts_with(name)) {
      const bool is_letter = name.size() == 2;
      if (is_letter || word[name.size()] == '=')
        found = {&flag, name, word.substr(name.size() + (is_letter ? 0 : 1))};
    }
  };
  for (const auto& flags : {own_flags(), horovod_flags()}) {
    for (const RunFlag& flag : flags)
      for_each_name(flag, [&](std::string_view name) { try_name(flag, name); });
  }
  return found;
}

// Reads the options before the program, and notes which were given. Returns the place of the program.
Result<std::size_t> read_flags(std::span<const std::string_view> arguments, RunOptions& options,
                               std::vector<const RunFlag*>& given) {
  std::size_t i = 0;
  for (; i < arguments.size() && arguments[i].starts_with('-'); ++i) {
    const std::string_view word = arguments[i];
    if (word == "--") return i + 1;
    const GivenFlag found = find_flag(word);
    if (found.flag == nullptr)
      return invalid_argument(fmt::format("unknown option '{}'; --help lists the known ones", word));
    const auto in_words = static_cast<std::size_t>(found.flag->value_count) - (found.value ? 1 : 0);
    if (i + in_words >= arguments.size())
      return invalid_argument(fmt::format("{}: a value must follow", found.name));
    std::string value(found.value ? *found.value : in_words > 0 ? "" : found.flag->preset);
    for (std::size_t k = 1; k <= in_words; ++k)
      value += fmt::format("{}{}", value.empty() ? "" : " ", arguments[i + k]);
    if (const Status status = found.flag->apply(options, *found.flag, value); !status)
      return status.with_context(found.name);
    if (options.wants_help || options.wants_version) return i + 1;
    given.push_back(found.flag);
    i += in_words;
  }
  return i;
}

// Settings of --config-file, where the command line says nothing of them.
Status read_config(RunOptions& options, const std::vector<const RunFlag*>& given) {
  const auto text = read_text(options.config_path);
  if (!text) return text.status();
  const auto settings = parse_horovod_config(*text);
  if (!settings) return settings.status();
  for (const HorovodSetting& setting : *settings) {
    const std::string place = fmt::format("line {}: {}", setting.line, setting.key);
    const auto is_same = [&](const RunFlag* flag) { return flag->config_key == setting.key; };
    if (std::any_of(given.begin(), given.end(), is_same)) continue;
    const auto found = find_configured_flag(setting.key, setting.value);
    if (!found) return found.status().with_context(place);
    if (found->flag == nullptr) {
      options.answers.push_back(
          fmt::format("{}: {}: Horovod reads no such setting", options.config_path, place));
    } else if (const Status status = found->flag->apply(options, *found->flag, found->value); !status) {
      return status.with_context(place);
    }
  }
  return {};
}

// The bounds of an elastic job, and whether the number of ranks is within them.
Status check_elastic(RunOptions& options) {
  ElasticLimits& limits = options.elastic;
  if (limits.min_ranks == 0 && limits.max_ranks == 0 && options.discovery_script.empty()) return {};
  if (options.part.world_size > 0) return {};  // the bounds are those of the whole job
  const int count = options.rank_count;
  if (limits.min_ranks > count)
    return invalid_argument(
        fmt::format("--min-np {}: the job starts with fewer ranks: -np is {}", limits.min_ranks, count));
  if (limits.max_ranks != 0 && limits.max_ranks < count)
    return invalid_argument(
        fmt::format("--max-np {}: the job starts with more ranks: -np is {}", limits.max_ranks, count));
  if (limits.min_ranks == 0) limits.min_ranks = count;
  if (limits.max_ranks == 0) limits.max_ranks = count;
  return {};
}

// A variable of ours wins in the ranks; whoever gave a flag may not expect that.
void answer_overruled(RunOptions& options) {
  std::vector<std::string> answers;
  for (const ExportedVariable& variable : options.exported) {
    const HorovodVariable* const theirs = find_horovod_variable(variable.name);
    if (theirs == nullptr || theirs->setting.empty()) continue;
    const std::string ours(theirs->setting);
    const bool is_exported = std::any_of(options.exported.begin(), options.exported.end(),
                                         [&](const ExportedVariable& other) { return other.name == ours; });
    if (is_exported || std::getenv(ours.c_str()) != nullptr)
      answers.push_back(
          fmt::format("{}={} is not used: {} is set, and wins", variable.name, variable.value, ours));
  }
  options.answers.insert(options.answers.end(), answers.begin(), answers.end());
}

// As horovodrun does, for all of the job.
Status complete_horovodrun(RunOptions& options) {
  options.is_horovod = true;
  if (!options.has_rank_count && !options.wants_check_build)
    return invalid_argument("-np: expected the number of ranks, such as -np 4");
  const char* const timeout = std::getenv("HOROVOD_START_TIMEOUT");
  const auto seconds = parse_number<int>(timeout == nullptr ? "" : timeout);
  if (options.ssh_connect_seconds == 0 && seconds && *seconds > 0) options.ssh_connect_seconds = *seconds;
  return {};
}

std::vector<HostSlots> offered_without(const RunOptions& options, std::string_view host) {
  std::vector<HostSlots> others = options.offered;
  std::erase_if(others, [&](const HostSlots& other) { return other.host == host; });
  return others;
}

std::int64_t count_slots(const std::vector<HostSlots>& hosts) {
  std::int64_t slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  return slots;
}

}  // namespace

Result<std::string> read_text(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  std::getline(file, text, '\0');
  if (!file.is_open() || file.bad())
    return invalid_argument(fmt::format("cannot read '{}': {}", path, std::strerror(errno)));
  return text;
}

Status place_job(RunOptions& options) {
  if (options.hosts.empty()) return check_elastic(options);
  const auto take = [&](int rank_count) -> Status {
    auto placed = place_ranks(options.offered, rank_count);
    if (!placed) return placed.status();
    options.hosts = *std::move(placed);
    options.rank_count = 0;
    for (const HostSlots& host : options.hosts) options.rank_count += host.slots;
    return {};
  };
  options.offered = options.hosts;
  TUTTI_RETURN_IF_ERROR(take(options.has_rank_count ? options.rank_count : 0));
  TUTTI_RETURN_IF_ERROR(check_elastic(options));
  const int most =
      static_cast<int>(std::min<std::int64_t>(count_slots(options.offered), options.elastic.max_ranks));
  return most > options.rank_count ? take(most) : Status();
}

bool has_slots_without(const RunOptions& options, std::string_view host) {
  return count_slots(offered_without(options, host)) >= options.elastic.min_ranks;
}

void drop_host(RunOptions& options, std::string_view host) {
  options.offered = offered_without(options, host);
  const auto slots = count_slots(options.offered);
  options.rank_count = static_cast<int>(std::min<std::int64_t>(options.rank_count, slots));
  // Cannot fail: there are as many slots.
  if (auto placed = place_ranks(options.offered, options.rank_count)) options.hosts = *std::move(placed);
}

int count_allowed_cpus() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return 1;
  return CPU_COUNT(&allowed) > 0 ? CPU_COUNT(&allowed) : 1;
}

Result<RunOptions> parse_run_options(std::span<const std::string_view> arguments, bool is_horovodrun) {
  RunOptions options;
  options.rank_count = count_allowed_cpus();
  const char* const patience = std::getenv("HOROVOD_ELASTIC_TIMEOUT");
  const auto seconds = parse_number<int>(patience == nullptr ? "" : patience);
  if (seconds && *seconds > 0) options.elastic.timeout = std::chrono::seconds(*seconds);
  std::vector<const RunFlag*> given;
  const auto program = read_flags(arguments, options, given);
  if (!program) return program.status();
  if (options.wants_help || options.wants_version) return options;
  options.has_rank_count =
      std::any_of(given.begin(), given.end(), [](const RunFlag* flag) { return first_name(*flag) == "-n"; });
  if (is_horovodrun) TUTTI_RETURN_IF_ERROR(complete_horovodrun(options));
  for (const std::string_view word : arguments.subspan(*program)) options.program.emplace_back(word);
  if (options.wants_check_build) return options;
  if (options.program.empty())
    return invalid_argument("a program to run must follow the options, such as python3 train.py");
  if (!options.config_path.empty()) {
    if (const Status status = read_config(options, given); !status)
      return status.with_context("--config-file " + options.config_path);
  }
  if (!options.discovery_script.empty() && !options.hosts.empty())
    return invalid_argument(
        "--host-discovery-script: it names the hosts, and so does -H or --hostfile; give one");
  TUTTI_RETURN_IF_ERROR(place_job(options));
  answer_overruled(options);
  return options;
}

}  // namespace tutti
