// Messages and the end of a job after a mistake. See failure.hpp.
#include "bindings/mlsl/failure.hpp"

#include <unistd.h>

#include <atomic>
#include <cstdio>

#include "bindings/mlsl/environment.hpp"

namespace tutti::mlsl {
namespace {

std::atomic<int> chosen_level{0};

void write(const char* kind, const std::string& message) {
  // One call a line: lines of several ranks stay whole.
  const std::string line =
      "mlsl: rank " + std::to_string(environment().rank()) + ": " + kind + message + "\n";
  std::fputs(line.c_str(), stderr);
}

}  // namespace

void fail(const std::string& message) {
  write("error: ", message);
  environment().abandon(message);
  ::_exit(1);
}

void set_log_level(LogLevel level) { chosen_level.store(static_cast<int>(level), std::memory_order_relaxed); }

bool is_logged(LogLevel level) {
  return static_cast<int>(level) <= chosen_level.load(std::memory_order_relaxed);
}

void log(LogLevel level, const std::string& message) {
  if (is_logged(level)) write("", message);
}

void warn(const std::string& message) { write("warning: ", message); }

}  // namespace tutti::mlsl
