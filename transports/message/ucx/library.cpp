// Messages and version of the UCX library. Knows no worker; see library.hpp.
#include "transports/message/ucx/library.hpp"

#include <ucp/api/ucp.h>
#include <ucs/debug/log_def.h>

#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>

#include "runtime/base/log.hpp"

namespace tutti::ucx {

namespace {

thread_local std::string last_error;

bool has_user_settings() {
  static const bool kIsSet = is_set("UCX_LOG_LEVEL") || is_set("UCX_LOG_FILE");
  return kIsSet;
}

ucs_log_func_rc_t on_message(const char*, unsigned, const char*, ucs_log_level_t level,
                             const ucs_log_component_config_t*, const char* format, va_list arguments) {
  if (level == UCS_LOG_LEVEL_FATAL) return UCS_LOG_FUNC_RC_CONTINUE;  // its last words
  std::array<char, 512> text{};
  va_list copy;
  va_copy(copy, arguments);
  std::vsnprintf(text.data(), text.size(), format, copy);
  va_end(copy);
  if (level == UCS_LOG_LEVEL_ERROR) last_error = text.data();
  if (has_user_settings()) return UCS_LOG_FUNC_RC_CONTINUE;
  log_at(level <= UCS_LOG_LEVEL_WARN ? LogLevel::info : LogLevel::debug, "ucx: {}", text.data());
  return UCS_LOG_FUNC_RC_STOP;
}

}  // namespace

bool is_set(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

bool has_user_signals() { return is_set("UCX_HANDLE_ERRORS") || is_set("UCX_ERROR_SIGNALS"); }

bool has_user_devices() { return is_set("UCX_NET_DEVICES"); }

std::mutex& library_mutex() {
  static std::mutex mutex;
  return mutex;
}

void take_over_messages() {
  static const bool kIsDone = [] {
    has_user_settings();  // the environment is read now
    ucs_log_push_handler(&on_message);
    return true;
  }();
  static_cast<void>(kIsDone);
}

Version library_version() {
  unsigned major = 0, minor = 0, release = 0;
  ucp_get_version(&major, &minor, &release);
  return {major, minor, ucp_get_version_string()};
}

std::string explain(ucs_status_t status) {
  std::string text = ucs_status_string(status);
  if (!last_error.empty()) text += " (" + last_error + ")";
  last_error.clear();
  return text;
}

}  // namespace tutti::ucx
