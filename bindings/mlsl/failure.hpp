// Ends the job on a mistake, as MLSL does, and writes the log of MLSL_LOG_LEVEL. Knows no communication.
#pragma once

#include <exception>
#include <string>
#include <utility>

namespace tutti::mlsl {

enum class LogLevel : int { error = 0, info = 1, debug = 2, trace = 3 };

// Writes the message to stderr, fails the global group so that no other rank waits, and exits with status 1.
[[noreturn]] void fail(const std::string& message);

void set_log_level(LogLevel level);
bool is_logged(LogLevel level);
// Writes to stderr, with this process's rank. Format the message only where is_logged().
void log(LogLevel level, const std::string& message);
// Written whatever the level is.
void warn(const std::string& message);

// Runs a call of tutti. Its exceptions must not reach a program that was written for MLSL.
template <class Call>
auto guarded(const char* name, Call&& call) -> decltype(call()) {
  try {
    return std::forward<Call>(call)();
  } catch (const std::exception& error) {
    fail(std::string(name) + ": " + error.what());
  }
}

}  // namespace tutti::mlsl
