// Reads TUTTI_PROGRESS_THREADS and TUTTI_PROGRESS_AFFINITY. See progress_settings.hpp.
#include "runtime/group/progress_settings.hpp"

#include <algorithm>
#include <charconv>
#include <utility>

#include "runtime/base/log.hpp"

namespace tutti {
namespace {

constexpr std::uint32_t kMostThreads = 64;

// MLSL's variables are for another library: mistakes in them cause a warning, not a failed start.
void read_mlsl_count(std::string_view text, std::uint32_t& count) {
  std::uint32_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number <= kMostThreads) {
    count = number;
  } else {
    log_warn("ignored: MLSL_NUM_SERVERS='{}': expected a number from 0 to {}", text, kMostThreads);
  }
}

void read_mlsl_cpus(std::string_view text, ProgressSettings& settings) {
  auto list = parse_progress_cpus(text);
  if (list) {
    settings.cpus = *std::move(list);
    settings.cpus_may_be_missing = true;
  } else {
    log_warn("ignored: MLSL_SERVER_AFFINITY: {}", list.status().message());
  }
}

}  // namespace

Result<ProgressSettings> read_progress_settings(const Environment& environment) {
  ProgressSettings settings;
  const auto count = get_integer(environment, "TUTTI_PROGRESS_THREADS");
  if (!count) return count.status();
  settings.thread_count =
      static_cast<std::uint32_t>(std::min<std::int64_t>(count->value_or(1), kMostThreads));
  if (const auto servers = environment.find("MLSL_NUM_SERVERS");
      servers && !is_set(environment, "TUTTI_PROGRESS_THREADS"))
    read_mlsl_count(*servers, settings.thread_count);
  const auto text = get_text(environment, "TUTTI_PROGRESS_AFFINITY");
  if (!text) return text.status();
  auto cpus = parse_progress_cpus(text->value_or("auto"));
  if (!cpus) return cpus.status().with_context("TUTTI_PROGRESS_AFFINITY");
  settings.cpus = *std::move(cpus);
  if (const auto servers = environment.find("MLSL_SERVER_AFFINITY");
      servers && !is_set(environment, "TUTTI_PROGRESS_AFFINITY"))
    read_mlsl_cpus(*servers, settings);
  return settings;
}

}  // namespace tutti
