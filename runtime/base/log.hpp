// Logging: one line per message on standard error, at a level chosen by TUTTI_LOG. Knows no group; the rank
// in front of a line is a number that is set from outside.
//
//   tutti warn: message            before a rank is known
//   tutti[3] warn: message         afterwards
//
// Each line is a single write(2) of at most 4096 bytes; longer ones are cut. Pipes and terminals do not
// interleave such writes with those of other ranks. Control characters become spaces. Every function may be
// called from any thread.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

enum class LogLevel : std::uint8_t { error, warn, info, debug, trace };

namespace detail {
// -1 until the first message asks for it and TUTTI_LOG is read.
inline std::atomic<int> log_level{-1};
int read_log_level();
void write_log_line(LogLevel level, fmt::string_view format, fmt::format_args arguments);
}  // namespace detail

// Whether a message of this level is written. One relaxed load; check it before costly work that only serves
// a message.
inline bool is_log_enabled(LogLevel level) {
  int limit = detail::log_level.load(std::memory_order_relaxed);
  if (limit < 0) limit = detail::read_log_level();
  return static_cast<int>(level) <= limit;
}

// Arguments are formatted only if the level is enabled, but they are evaluated either way.
template <class... Args>
void log_at(LogLevel level, fmt::format_string<Args...> format, Args&&... arguments) {
  if (is_log_enabled(level)) detail::write_log_line(level, format, fmt::make_format_args(arguments...));
}
template <class... Args>
void log_error(fmt::format_string<Args...> format, Args&&... arguments) {
  log_at(LogLevel::error, format, std::forward<Args>(arguments)...);
}
template <class... Args>
void log_warn(fmt::format_string<Args...> format, Args&&... arguments) {
  log_at(LogLevel::warn, format, std::forward<Args>(arguments)...);
}
template <class... Args>
void log_info(fmt::format_string<Args...> format, Args&&... arguments) {
  log_at(LogLevel::info, format, std::forward<Args>(arguments)...);
}
template <class... Args>
void log_debug(fmt::format_string<Args...> format, Args&&... arguments) {
  log_at(LogLevel::debug, format, std::forward<Args>(arguments)...);
}
template <class... Args>
void log_trace(fmt::format_string<Args...> format, Args&&... arguments) {
  log_at(LogLevel::trace, format, std::forward<Args>(arguments)...);
}

// Overrides TUTTI_LOG for the process.
void set_log_level(LogLevel level);
// The rank to show in front of each line of this process. The first call counts: a process with several ranks
// or worlds has no single rank. Negative is ignored.
void set_log_rank(int rank);

// Tests: while one lives, lines go into it instead of standard error. Only one at a time.
class LogCapture {
 public:
  // Sets the level as well, and restores it.
  explicit LogCapture(LogLevel level);
  ~LogCapture();
  LogCapture(const LogCapture&) = delete;
  LogCapture& operator=(const LogCapture&) = delete;

  // The lines so far, as they would have been written, without the line end.
  std::vector<std::string> lines() const;

 private:
  friend void detail::write_log_line(LogLevel, fmt::string_view, fmt::format_args);
  int previous_level_;
  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace tutti
