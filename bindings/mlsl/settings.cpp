// Reads MLSL's variables. MLSL_NUM_SERVERS and MLSL_SERVER_AFFINITY are read by libtutti. See settings.hpp.
#include "bindings/mlsl/settings.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <limits>
#include <stdexcept>
#include <string_view>

namespace tutti::mlsl {
namespace {

struct Answer {
  const char* name;
  const char* reason;
};
constexpr const char* kNoServers =
    "there are no server processes; MLSL_NUM_SERVERS progress threads do their work";
constexpr const char* kNoHeap = "memory that ranks share grows on demand";
constexpr const char* kBootstrap = "the launcher tells ranks where the others are (docs/launchers.md)";
constexpr const char* kSelection =
    "tutti chooses by message size; docs/choosing.md tells how to choose otherwise";
// Variables that are set without need of an effect.
constexpr std::array kAnswers = {
    Answer{"MLSL_AUTO_CONFIG_TYPE", "tutti finds networks and CPUs by itself (tutti info)"},
    Answer{"MLSL_HEAP_SIZE_GB", kNoHeap},
    Answer{"MLSL_SERVER_CREATION_TYPE", kNoServers},
    Answer{"MLSL_SERVER_PREFIX", kNoServers},
    Answer{"MLSL_HOSTNAME_TYPE", kBootstrap},
    Answer{"MLSL_HOSTNAME", kBootstrap},
    Answer{"MLSL_IFACE_NAME", "TUTTI_IFACE names network interfaces"},
    Answer{"MLSL_IFACE_IDX", "TUTTI_IFACE names network interfaces"},
    Answer{"MLSL_MSG_PRIORITY_MODE",
           "with MLSL_MSG_PRIORITY=1 the operation that was added first is the most urgent"},
    Answer{"MLSL_MAX_SHORT_MSG_SIZE", kSelection},
    Answer{"MLSL_USE_COPY_THREADS", "progress threads copy"},
    Answer{"MLSL_COPY_THREADS", "progress threads copy"},
    Answer{"MLSL_COPY_THRESHOLD", "progress threads copy"},
    Answer{"MLSL_CHECK_SINGLE_NODE", "ranks of one node use the same number of progress threads as others"},
    Answer{"MLSL_ALLTOALL_SPLIT", kSelection},
    Answer{"MLSL_ALLTOALLV_SPLIT", kSelection},
    Answer{"MLSL_THP_THRESHOLD_MB", kNoHeap},
    Answer{"MLSL_CHECK_MEM_SIZE", kNoHeap},
    Answer{"MLSL_MPI_VERSION_CHECK", "any MPI may be loaded beside libmlsl"},
};

std::size_t read_number(const ReadVariable& read, const char* name, std::size_t unset, std::size_t least,
                        std::size_t most) {
  const auto text = read(name);
  if (!text) return unset;
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (error != std::errc() || end != text->data() + text->size() || number < least || number > most)
    throw std::invalid_argument(
        fmt::format("{}='{}': expected a number from {} to {}", name, *text, least, most));
  return number;
}

bool read_switch(const ReadVariable& read, const char* name, bool unset) {
  return read_number(read, name, unset ? 1 : 0, 0, 1) == 1;
}

void answer_server_kind(const ReadVariable& read, std::vector<std::string>& answers) {
  const auto text = read("MLSL_DYNAMIC_SERVER");
  if (!text) return;
  constexpr std::array<std::string_view, 5> kKinds = {"hybrid", "process", "thread", "asyncthread",
                                                      "disable"};
  for (const auto kind : kKinds) {
    if (kind != *text) continue;
    if (kind == "process" || kind == "hybrid")
      answers.push_back(fmt::format("MLSL_DYNAMIC_SERVER={} has no effect: {}", kind, kNoServers));
    if (kind == "disable")
      answers.emplace_back(
          "MLSL_DYNAMIC_SERVER=disable has no effect: MLSL_NUM_SERVERS=0 stops progress threads");
    return;
  }
  throw std::invalid_argument(fmt::format(
      "MLSL_DYNAMIC_SERVER='{}': expected hybrid, process, thread, asyncthread or disable", *text));
}

// A prioritized gradient travels in pieces. Without a progress thread each of them would take a pause of its own.
void require_thread_for_priority(const ReadVariable& read, Settings& settings,
                                 std::vector<std::string>& answers) {
  const char* const name = read("TUTTI_PROGRESS_THREADS") ? "TUTTI_PROGRESS_THREADS" : "MLSL_NUM_SERVERS";
  if (!settings.has_priority || read(name) != "0") return;
  settings.has_priority = false;
  answers.push_back(
      fmt::format("MLSL_MSG_PRIORITY=1 has no effect: it needs a progress thread, and {} is 0", name));
}

}  // namespace

Settings read_settings(const ReadVariable& read, std::vector<std::string>& answers) {
  constexpr std::size_t kAny = std::numeric_limits<std::int32_t>::max();
  Settings settings;
  settings.log_level = static_cast<LogLevel>(read_number(read, "MLSL_LOG_LEVEL", 0, 0, 3));
  settings.has_statistics = read_switch(read, "MLSL_STATS", false);
  settings.duplicates_groups = read_switch(read, "MLSL_DUP_GROUP", true);
  settings.has_priority = read_switch(read, "MLSL_MSG_PRIORITY", false);
  settings.priority_bytes =
      read_number(read, "MLSL_MSG_PRIORITY_THRESHOLD", settings.priority_bytes, 0, kAny);
  settings.large_message_bytes = read_number(read, "MLSL_LARGE_MSG_SIZE_MB", 128, 1, 1U << 20) << 20;
  settings.large_message_chunks =
      read_number(read, "MLSL_LARGE_MSG_CHUNKS", settings.large_message_chunks, 1, 1U << 16);
  settings.starts_mpi = read_switch(read, "MLSL_INIT_MPI", true);
  settings.allows_reinit = read_switch(read, "MLSL_ALLOW_REINIT", false);
  require_thread_for_priority(read, settings, answers);
  answer_server_kind(read, answers);
  for (const Answer& answer : kAnswers)
    if (const auto text = read(answer.name))
      answers.push_back(fmt::format("{}={} has no effect: {}", answer.name, *text, answer.reason));
  return settings;
}

Settings read_environment(std::vector<std::string>& answers) {
  return guarded("environment", [&] {
    return read_settings(
        [](const char* name) -> std::optional<std::string> {
          const char* text = std::getenv(name);
          return text != nullptr && *text != '\0' ? std::optional<std::string>(text) : std::nullopt;
        },
        answers);
  });
}

std::optional<int> parse_color(const std::string& config) {
  constexpr std::string_view kKey = "color=";
  std::size_t first = 0;
  while (config.compare(first, kKey.size(), kKey) != 0) {
    first = config.find(',', first);
    if (first++ == std::string::npos) return std::nullopt;
  }
  first += kKey.size();
  const char* const end = config.data() + std::min(config.find(',', first), config.size());
  int color = 0;
  const auto [last, error] = std::from_chars(config.data() + first, end, color);
  if (error == std::errc() && last == end && color >= 0) return color;
  throw std::invalid_argument(fmt::format("'{}': expected \"color=N\" with N from 0", config));
}

}  // namespace tutti::mlsl
