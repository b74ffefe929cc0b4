// Starting and ending busy processes. Knows no measurement.
#include "tools/cli/bench/neighbours.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tutti::tool {
namespace {

[[noreturn]] void be_busy(pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(0);  // it died before it was asked for
  ::setsid();
  for (;;) asm volatile("" ::: "memory");
}

}  // namespace

BusyNeighbours::~BusyNeighbours() {
  for (const pid_t process : processes_) ::kill(process, SIGKILL);
  for (const pid_t process : processes_) {
    while (::waitpid(process, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
}

Result<BusyNeighbours> BusyNeighbours::start(int count) {
  BusyNeighbours started;
  started.processes_.reserve(static_cast<std::size_t>(count));
  const pid_t own = ::getpid();
  std::fflush(nullptr);
  for (int i = 0; i < count; ++i) {
    const pid_t process = ::fork();
    if (process == 0) be_busy(own);
    if (process < 0) {
      return Status(StatusCode::resource_exhausted,
                    fmt::format("only {} of {} busy processes can be started ({}); look at ulimit -u", i,
                                count, std::strerror(errno)));
    }
    started.processes_.push_back(process);
  }
  return started;
}

}  // namespace tutti::tool
