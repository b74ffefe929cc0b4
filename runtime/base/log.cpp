// Formatting and writing of log lines, and the level from TUTTI_LOG.
// Knows no group and no file: standard error is the only sink, tests aside.
#include "runtime/base/log.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <iterator>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"

namespace tutti {
namespace {

constexpr std::size_t kMaxLineBytes = 4096;  // PIPE_BUF: a longer write to a pipe may be torn apart
constexpr const char* kLevelNames[] = {"error", "warn", "info", "debug", "trace"};

std::atomic<int> log_rank{-1};
// The capture of a test. The mutex keeps it alive while a line is added; without one, nobody takes the mutex.
std::atomic<LogCapture*> capture{nullptr};
std::mutex capture_mutex;

// Errors are lost on purpose: there is no place left to report them. errno is the caller's.
void write_line(const char* data, std::size_t size_bytes) {
  const int saved_errno = errno;
  while (::write(STDERR_FILENO, data, size_bytes) < 0 && errno == EINTR) {
  }
  errno = saved_errno;
}

}  // namespace

// This and write_log_line are weak: a module has its own in their place (transports/module_side.cpp).
[[gnu::weak]] int detail::read_log_level() {
  const Result<std::string> name = get_enum(Environment::of_process(), "TUTTI_LOG");
  int level = static_cast<int>(LogLevel::warn);
  for (int i = 0; name && i < static_cast<int>(std::size(kLevelNames)); ++i) {
    if (*name == kLevelNames[i]) level = i;
  }
  int expected = -1;  // another thread may have set it meanwhile: the first one stands
  const bool is_first = log_level.compare_exchange_strong(expected, level, std::memory_order_relaxed);
  if (is_first && !name) log_warn("{}; using warn", name.status().message());
  return is_first ? level : expected;
}

[[gnu::weak]] void detail::write_log_line(LogLevel level, fmt::string_view format,
                                          fmt::format_args arguments) {
  fmt::memory_buffer line;
  const int rank = log_rank.load(std::memory_order_relaxed);
  if (rank < 0) {
    fmt::format_to(std::back_inserter(line), "tutti {}: ", kLevelNames[static_cast<int>(level)]);
  } else {
    fmt::format_to(std::back_inserter(line), "tutti[{}] {}: ", rank, kLevelNames[static_cast<int>(level)]);
  }
  fmt::vformat_to(std::back_inserter(line), format, arguments);
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F)
      c = ' ';  // a message is one line; no terminal codes
  }
  if (line.size() > kMaxLineBytes - 1) {
    line.resize(kMaxLineBytes - 4);
    line.append(std::string_view("..."));
  }
  if (capture.load(std::memory_order_acquire) != nullptr) {
    const std::lock_guard<std::mutex> lock(capture_mutex);
    if (LogCapture* target = capture.load(std::memory_order_relaxed); target != nullptr) {
      const std::lock_guard<std::mutex> lines_lock(target->mutex_);
      target->lines_.emplace_back(line.data(), line.size());
      return;
    }
  }
  line.push_back('\n');
  write_line(line.data(), line.size());
}

void set_log_level(LogLevel level) {
  detail::log_level.store(static_cast<int>(level), std::memory_order_relaxed);
}

void set_log_rank(int rank) {
  int expected = -1;
  if (rank >= 0) log_rank.compare_exchange_strong(expected, rank, std::memory_order_relaxed);
}

LogCapture::LogCapture(LogLevel level)
    : previous_level_(detail::log_level.exchange(static_cast<int>(level), std::memory_order_relaxed)) {
  const std::lock_guard<std::mutex> lock(capture_mutex);
  TUTTI_ASSERT(capture.load(std::memory_order_relaxed) == nullptr, "one capture at a time");
  capture.store(this, std::memory_order_release);
}

LogCapture::~LogCapture() {
  const std::lock_guard<std::mutex> lock(capture_mutex);
  capture.store(nullptr, std::memory_order_relaxed);
  detail::log_level.store(previous_level_, std::memory_order_relaxed);
}

std::vector<std::string> LogCapture::lines() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return lines_;
}

}  // namespace tutti
