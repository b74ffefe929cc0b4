// Names of signals. Knows no process; see signals.hpp.
#include "tools/cli/run/signals.hpp"

namespace tutti {
namespace {

struct PassedSignal {
  int number;
  std::string_view name;
};
constexpr PassedSignal kPassedSignals[] = {{SIGINT, "INT"},   {SIGTERM, "TERM"}, {SIGHUP, "HUP"},
                                           {SIGUSR1, "USR1"}, {SIGUSR2, "USR2"}, {SIGSTOP, "STOP"},
                                           {SIGCONT, "CONT"}};

}  // namespace

std::string_view name_of_signal(int signal) {
  for (const PassedSignal& passed : kPassedSignals) {
    if (passed.number == signal) return passed.name;
  }
  return {};
}

std::optional<int> signal_of_name(std::string_view name) {
  for (const PassedSignal& passed : kPassedSignals) {
    if (passed.name == name) return passed.number;
  }
  return std::nullopt;
}

sigset_t supervised_signals() {
  sigset_t set;
  sigemptyset(&set);
  // SIGSTOP cannot be blocked, and SIGCONT goes together with it.
  for (const PassedSignal& passed : kPassedSignals) {
    if (passed.number != SIGSTOP && passed.number != SIGCONT) sigaddset(&set, passed.number);
  }
  sigaddset(&set, SIGCHLD);
  // A shell without job control could not continue us.
  struct sigaction stop {};
  if (::sigaction(SIGTSTP, nullptr, &stop) == 0 && stop.sa_handler != SIG_IGN) sigaddset(&set, SIGTSTP);
  return set;
}

}  // namespace tutti
