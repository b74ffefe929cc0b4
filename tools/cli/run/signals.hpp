// The signals that `tutti run` passes on to ranks. Knows no process.
#pragma once

#include <signal.h>

#include <optional>
#include <string_view>

namespace tutti {

// The name by which a signal is passed to a part of the job on another host, in a line of its standard input.
// Empty for a signal that is not passed on.
std::string_view name_of_signal(int signal);
std::optional<int> signal_of_name(std::string_view name);

// Signals that a supervisor blocks and reads from a signalfd: those that it passes on, SIGCHLD, and Ctrl-Z
// unless its parent ignores that.
sigset_t supervised_signals();

}  // namespace tutti
