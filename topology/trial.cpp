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
#include <climits>
#include <cstring>
#include <string>

#include "runtime/base/running_clock.hpp"

namespace tutti::detail {
namespace {

// One write to a pipe of at most PIPE_BUF bytes is read as a whole.
constexpr std::size_t kMostReportBytes = 2001;
static_assert(kMostReportBytes <= PIPE_BUF);

// Nobody is to hear of the child's end but us: no handler of the program, no message, no core.
[[noreturn]] void run_quietly(const std::function<Status()>& work, int report) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int signal : {SIGSEGV, SIGBUS, SIGABRT, SIGILL, SIGFPE, SIGTRAP}) ::signal(signal, SIG_DFL);
  const rlimit none{0, 0};
  ::setrlimit(RLIMIT_CORE, &none);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null >= 0) {
    ::dup2(null, STDOUT_FILENO);
    ::dup2(null, STDERR_FILENO);
  }
  const Status outcome = work();
  std::string bytes(1, static_cast<char>(outcome.code()));
  bytes += outcome.message().substr(0, kMostReportBytes - 1);
  ::_exit(::write(report, bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()) ? 0 : 1);
}

// Reads the child's report. False if it ended without one, or at the deadline.
bool read_report(int report, Clock::time_point deadline, bool* is_late, Status* outcome) {
  for (;;) {
    if (Clock::now() >= deadline) {
      *is_late = true;
      return false;
    }
    pollfd ready{report, POLLIN, 0};
    if (::poll(&ready, 1, poll_milliseconds(deadline)) <= 0) continue;
    std::array<char, kMostReportBytes> bytes;
    const ssize_t got = ::read(report, bytes.data(), bytes.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 1) return false;
    const auto code = static_cast<StatusCode>(bytes[0]);
    const std::string message(bytes.data() + 1, static_cast<std::size_t>(got - 1));
    *outcome = code == StatusCode::ok ? Status() : Status(code, message);
    return true;
  }
}

}  // namespace

Status try_in_child(const std::function<Status()>& work, std::chrono::milliseconds at_most, Status* outcome) {
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
  const bool is_fine = read_report(ends[0], Clock::now() + at_most, &is_late, outcome);
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
