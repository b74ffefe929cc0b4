// Threads of the library.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti {

// Starts a thread that has a name (15 characters at most) and takes no signal: signals are for the program's
// threads. Errors: resource_exhausted, with the limits that may have been reached.
Result<std::thread> start_thread(const char* name, std::function<void()> body);

// Starts `count` of them, numbered from 0, or as many as the system grants: then it warns, and says what goes on
// without the others. `kind`: "progress threads".
std::vector<std::thread> start_threads(const char* name, std::uint32_t count,
                                       const std::function<void(std::uint32_t)>& body, std::string_view kind,
                                       std::string_view without);

}  // namespace tutti
