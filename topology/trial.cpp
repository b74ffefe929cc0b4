// Forks and waits; see trial.hpp. Knows no topology.
#include "topology/trial.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "runtime/base/running_clock.hpp"

namespace tutti::detail {
namespace {

// Nobody is to hear of the child's end but us: no handler of the program, no message, no core.
[[noreturn]] void run_quietly(const std::function<void()>& work, int report) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTRAP}) ::signal(signal, SIG_DFL);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    ::dup2(null, STDOUT_FILENO);
    ::dup2(null, STDERR_FILENO);
  }
  work();
  const char done = 'd';
  ::_exit(::write(report, &done, 1) == 1 ? 0 : 1);
}

// Has the child said that it is done? False at its end, or at the deadline.
bool is_done(int report, Clock::time_point deadline, bool* is_late) {
  for (;;) {
    if (Clock::now() >= deadline) {
      *is_late = true;
      return false;
    }
    pollfd ready{report, POLLIN, 0};
    if (::poll(&ready, 1, poll_milliseconds(deadline)) <= 0) continue;
    char word = 0;
    const ssize_t got = ::read(report, &word, 1);
    if (got < 0 && errno == EINTR) continue;
    return got == 1;
  }
}

}  // namespace

Status try_in_child(const std::function<void()>& work, std::chrono::milliseconds at_most) {
  const auto failed = [] {
    return Status(StatusCode::resource_exhausted,
                  fmt::format("cannot start a process for a trial: {}", std::strerror(errno)));
  };
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failed();
  const pid_t pid = ::fork();
  if (pid == 0) run_quietly(work, ends[1]);
  const int error = errno;
  ::close(ends[1]);
  if (pid < 0) {
    ::close(ends[0]);
    errno = error;
    return failed();
  }
  bool is_late = false;
  const bool is_fine = is_done(ends[0], Clock::now() + at_most, &is_late);
  ::close(ends[0]);
  if (is_late) ::kill(pid, SIGKILL);
  // Where the program ignores SIGCHLD, or waits for everybody, there is no status: the pipe has told enough.
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (is_fine) return {};
  return invalid_argument(is_late ? fmt::format("it takes longer than {} s", at_most.count() / 1000)
                                  : std::string("it crashes the reader"));
}

}  // namespace tutti::detail
