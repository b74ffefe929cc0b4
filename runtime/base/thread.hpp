// Threads of our own.
#pragma once

#include <functional>
#include <thread>

namespace tutti {

// Starts a thread that has a name (15 characters at most) and takes no signal: those are for the program's
// threads. Throws std::system_error where there can be no more threads.
std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace tutti
