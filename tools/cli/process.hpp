// Runs a helper program, such as a plot script. Knows no script.
#pragma once

#include <string>
#include <vector>

namespace tutti::tool {

inline constexpr int kNotStarted = 127;

// The exit status of the program; kNotStarted if it is not there, 1 if a signal ended it. Quiet: without its
// standard error.
int run_and_wait(const std::vector<std::string>& words, bool is_quiet);

}  // namespace tutti::tool
