// Effects of UCX on the whole process: log messages, signal handlers; and its version.
// Knows no worker.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>

#include <ucs/type/status.h>

namespace tutti::ucx {

// UCX reads its configuration into tables of the process, unguarded: contexts are made and ended under this.
std::mutex& library_mutex();

// From the first call on UCX's messages go into tutti's log, its errors and warnings as `info`, unless the
// user has set UCX_LOG_LEVEL or UCX_LOG_FILE.
void take_over_messages();

// Has the user said which signals UCX is to handle?
bool has_user_signals();

// Or which devices it is to use?
bool has_user_devices();

// Is this variable of UCX set, and not empty?
bool is_set(const char* variable);

struct Version {
  std::uint32_t major = 0, minor = 0;
  std::string text;
};
Version library_version();  // of the library that runs, which may be newer than the headers

// UCX's words for a status and, if it has said more in this thread since the last call, its last error
// message.
std::string explain(ucs_status_t status);

}  // namespace tutti::ucx
