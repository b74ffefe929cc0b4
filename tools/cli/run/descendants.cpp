// Reads /proc. Knows no job; see descendants.hpp.
#include "tools/cli/run/descendants.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fstream>
#include <optional>

#include "runtime/base/ascii.hpp"

namespace tutti {
namespace {

constexpr const char* kKeeperName = "tutti-keeper";
// Rounds in which nobody new may appear, and the time between two.
constexpr int kKeeperRounds = 100;
constexpr timespec kKeeperPause{0, 10'000'000};

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text;
  std::array<char, 4096> piece;
  // read() ends at an error of the system, which an iterator would throw.
  while (file.read(piece.data(), piece.size()), file.gcount() > 0)
    text.append(piece.data(), static_cast<std::size_t>(file.gcount()));
  return text;
}

std::string path_of(pid_t pid, std::string_view name) { return fmt::format("/proc/{}/{}", pid, name); }

// Of the environment with which the process was started; nullopt where it lacks the variable or is not ours
// to read.
std::optional<std::string> variable_of(pid_t pid, std::string_view name) {
  const std::string environment = read_file(path_of(pid, "environ"));
  const std::string start = fmt::format("{}=", name);
  for (std::string_view rest = environment; !rest.empty();) {
    const std::string_view item = rest.substr(0, rest.find('\0'));
    if (item.starts_with(start)) return std::string(item.substr(start.size()));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
  }
  return std::nullopt;
}

std::vector<pid_t> list_processes() {
  std::vector<pid_t> pids;
  DIR* const folder = ::opendir("/proc");
  if (folder == nullptr) return pids;
  while (const dirent* entry = ::readdir(folder)) {
    if (const auto pid = parse_number<pid_t>(entry->d_name)) pids.push_back(*pid);
  }
  ::closedir(folder);
  return pids;
}

// The descriptor keeps meaning this process, also if its number is given to another one meanwhile.
void kill_if_of_job(pid_t pid, const std::string& job_id, int* found) {
  const int handle = static_cast<int>(::syscall(SYS_pidfd_open, pid, 0));
  if (variable_of(pid, "TUTTI_JOB_ID") == job_id) {
    ++*found;
    if (handle >= 0) {
      ::syscall(SYS_pidfd_send_signal, handle, SIGKILL, nullptr, 0);
    } else {
      ::kill(pid, SIGKILL);
    }
  }
  if (handle >= 0) ::close(handle);
}

bool is_keeper(pid_t pid) { return read_file(path_of(pid, "comm")) == fmt::format("{}\n", kKeeperName); }

[[noreturn]] void keep(int lifeline, const std::string& job_id) {
  ::setsid();  // no signal of the terminal, and no group that is killed as a whole, reaches it
  ::prctl(PR_SET_NAME, kKeeperName);
  // Readers of our output must not wait for this process.
  ::dup2(lifeline, STDIN_FILENO);
  ::syscall(SYS_close_range, STDIN_FILENO + 1, ~0U, 0);
  sigset_t all;
  sigfillset(&all);
  ::sigprocmask(SIG_BLOCK, &all, nullptr);
  char word = 0;
  ssize_t got = 0;
  while ((got = ::read(STDIN_FILENO, &word, 1)) < 0 && errno == EINTR) {
  }
  int found = got == 1 ? 0 : 1;
  for (int round = 0; round < kKeeperRounds && found > 0; ++round) {
    found = 0;
    for (const pid_t pid : list_processes()) {
      // A job inside of this one has its own keeper.
      if (!is_keeper(pid)) kill_if_of_job(pid, job_id, &found);
    }
    if (found > 0) ::nanosleep(&kKeeperPause, nullptr);
  }
  ::_exit(0);
}

}  // namespace

std::vector<pid_t> list_children() {
  std::vector<pid_t> children;
  const std::string list = read_file(fmt::format("/proc/self/task/{}/children", ::getpid()));
  for (std::string_view rest = list; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (const auto pid = parse_number<pid_t>(word)) children.push_back(*pid);
    rest.remove_prefix(std::min(word.size() + 1, rest.size()));
  }
  return children;
}

std::string describe_leftover(pid_t pid) {
  std::string name = read_file(path_of(pid, "comm"));
  while (!name.empty() && name.back() == '\n') name.pop_back();
  const std::string stat = read_file(path_of(pid, "stat"));
  const std::size_t end_of_name = stat.rfind(") ");
  if (name.empty() || end_of_name == std::string::npos || stat.substr(end_of_name + 2, 1) == "Z") return {};
  const std::optional<std::string> rank = variable_of(pid, "TUTTI_RANK");
  return fmt::format("{} left {} (pid {}) running", rank ? "rank " + *rank : "a rank", name, pid);
}

Result<Keeper> Keeper::start(const std::string& job_id) {
  const auto failed = [] {
    return Status(StatusCode::resource_exhausted,
                  fmt::format("cannot start the job's keeper: {}", std::strerror(errno)));
  };
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return failed();
  const OwnedFd reader(ends[0]);
  Keeper keeper;
  keeper.lifeline_ = OwnedFd(ends[1]);
  keeper.pid_ = ::fork();
  if (keeper.pid_ < 0) return failed();
  if (keeper.pid_ == 0) {
    ::close(ends[1]);
    keep(ends[0], job_id);
  }
  return keeper;
}

void Keeper::dismiss() {
  if (pid_ < 0) return;
  const char word = 'q';
  // A keeper that somebody has killed needs no word.
  static_cast<void>(::write(lifeline_.get(), &word, 1) == 1);
  lifeline_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

}  // namespace tutti
