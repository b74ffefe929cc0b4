// Threads of the library.
#pragma once

#include <functional>
#include <thread>

#include "runtime/base/status.hpp"

namespace tutti {

// Starts a thread that has a name (15 characters at most) and takes no signal: signals are for the program's
// threads. Errors: resource_exhausted, with the limits that may have been reached.
Result<std::thread> start_thread(const char* name, std::function<void()> body);

}  // namespace tutti
