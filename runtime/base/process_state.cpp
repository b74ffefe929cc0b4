// Reads /proc/PID/stat, cgroups, pidfds and TCP_INFO; see process_state.hpp.
#include "runtime/base/process_state.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <vector>

#include "runtime/base/ascii.hpp"

namespace tutti {
namespace {

constexpr unsigned kIsExiting = 0x4;  // PF_EXITING of the kernel, in the flags of /proc/PID/stat
// Acknowledgements take a round trip; a frame was sent longer ago than this when somebody asks.
constexpr std::uint32_t kAckMilliseconds = 400;

// Of linux/pidfd.h, since 6.15, and of asm/socket.h, since 6.5: older headers lack them.
constexpr int kPeerPidfd = 77;                 // SO_PEERPIDFD
constexpr std::uint64_t kExitInfo = 1U << 3U;  // PIDFD_INFO_EXIT
struct PidfdInfo {
  std::uint64_t mask, cgroup_id;
  std::uint32_t ids[11];
  std::int32_t exit_code;
};
constexpr unsigned long kGetInfo = _IOWR(0xFF, 11, PidfdInfo);

// Empty if it cannot be read: the process may end at any moment.
std::string read_file(const std::string& path) {
  std::string text;
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return text;
  std::array<char, 4096> bytes;
  ssize_t count = 0;
  while ((count = ::read(fd, bytes.data(), bytes.size())) > 0)
    text.append(bytes.data(), static_cast<std::size_t>(count));
  ::close(fd);
  return text;
}

struct StatLine {
  char state = '?';
  unsigned flags = 0;
  int exit_code = 0;
};

bool read_stat(int pid, StatLine& found) {
  std::string text = read_file(fmt::format("/proc/{}/stat", pid));
  if (text.ends_with('\n')) text.pop_back();
  const std::size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return false;
  const std::vector<std::string_view> fields =
      split(std::string_view(text).substr(std::min(name_end + 2, text.size())), ' ');
  constexpr std::size_t kState = 3, kFlags = 9, kExitCode = 52;  // as proc(5) counts
  const auto field = [&](std::size_t number) {
    return number - kState < fields.size() ? fields[number - kState] : std::string_view();
  };
  if (!field(kState).empty()) found.state = field(kState)[0];
  found.flags = parse_number<unsigned>(field(kFlags)).value_or(0);
  found.exit_code = parse_number<int>(field(kExitCode)).value_or(0);
  return true;
}

ProcessState frozen(std::string reason, int signal = 0) {
  return {ProcessCondition::frozen, signal, -1, std::move(reason)};
}

// The process has left /proc; its socket still holds a reference to it.
ProcessState inspect_reaped(int fd) {
  ProcessState state{ProcessCondition::ended, 0, -1, {}};
  int pidfd = -1;
  socklen_t bytes = sizeof pidfd;
  if (::getsockopt(fd, SOL_SOCKET, kPeerPidfd, &pidfd, &bytes) != 0 || pidfd < 0) return state;
  PidfdInfo info{};
  info.mask = kExitInfo;
  if (::ioctl(pidfd, kGetInfo, &info) == 0 && (info.mask & kExitInfo) != 0)
    state = state_of_end(info.exit_code);
  ::close(pidfd);
  return state;
}

}  // namespace

ProcessState state_of_end(int wait_status) {
  ProcessState state{ProcessCondition::ended, 0, -1, {}};
  if (WIFSIGNALED(wait_status)) {
    state.signal = WTERMSIG(wait_status);
    state.reason = "killed by " + name_signal(state.signal);
  } else {
    state.exit_status = WEXITSTATUS(wait_status);
    state.reason = fmt::format("it ended with exit status {} without leaving the group", state.exit_status);
  }
  return state;
}

std::string find_frozen_cgroup(std::string_view lines, const std::string& root) {
  for (const std::string_view line : split(lines, '\n')) {  // "4:freezer:/job", "0::/job"
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string_view controllers = line.substr(first + 1, second - first - 1),
                           path = line.substr(second + 1);
    if (controllers == "freezer") {
      const std::string state = read_file(fmt::format("{}/freezer{}/freezer.state", root, path));
      if (state.starts_with("FROZEN") || state.starts_with("FREEZING")) return std::string(path);
    }
    if (!controllers.empty()) continue;
    for (const char* const mount : {"", "/unified"}) {
      const std::string events = read_file(fmt::format("{}{}{}/cgroup.events", root, mount, path));
      if (events.find("frozen 1") != std::string::npos) return std::string(path);
    }
  }
  return {};
}

ProcessState inspect_process(int pid) {
  StatLine stat;
  if (pid <= 0) return {};
  if (!read_stat(pid, stat)) {
    const bool is_gone = ::kill(pid, 0) != 0 && errno == ESRCH;  // else /proc is hidden
    return {is_gone ? ProcessCondition::ended : ProcessCondition::unknown, 0, -1, {}};
  }
  if (stat.state == 'Z' || stat.state == 'X' || (stat.flags & kIsExiting) != 0)
    return state_of_end(stat.exit_code);
  if (stat.state == 't') return frozen("stopped by a debugger");
  if (stat.state == 'T') {
    const int signal = stat.exit_code;  // of a stopped process: the signal that stopped it
    return frozen(signal > 0 && signal < NSIG ? "stopped by " + name_signal(signal) : "stopped", signal);
  }
  const std::string cgroup =
      find_frozen_cgroup(read_file(fmt::format("/proc/{}/cgroup", pid)), "/sys/fs/cgroup");
  if (!cgroup.empty()) return frozen(fmt::format("its cgroup {} is frozen", cgroup));
  return {ProcessCondition::runs, 0, -1, {}};
}

ProcessState inspect_peer(int fd, int pid) {
  ProcessState state = inspect_process(pid);
  const bool is_told = state.signal != 0 || state.exit_status >= 0;
  return state.condition == ProcessCondition::ended && !is_told ? inspect_reaped(fd) : state;
}

ProcessState inspect_remote(int fd) {
  tcp_info info{};
  socklen_t bytes = sizeof info;
  if (::getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return {};
  // A probe is under way where data could not even be sent: a device drops it, or is down.
  const bool is_unacknowledged =
      info.tcpi_unacked > 0 && (info.tcpi_retransmits > 0 || info.tcpi_last_ack_recv >= kAckMilliseconds);
  if (info.tcpi_probes == 0 && !is_unacknowledged) return {ProcessCondition::silent, 0, -1, {}};
  return {ProcessCondition::unreachable, 0, -1,
          fmt::format("its host has acknowledged nothing for {:g} s", info.tcpi_last_ack_recv / 1000.0)};
}

void judge(const ProcessState& state, RankVerdict& verdict) {
  verdict.signal = state.signal;
  verdict.exit_status = state.exit_status;
  verdict.reason = state.reason;
  switch (state.condition) {
    case ProcessCondition::runs:
      verdict.kind = VerdictKind::late;
      verdict.reason = "it is alive, but too busy to answer";
      break;
    case ProcessCondition::frozen:
      verdict.kind = VerdictKind::frozen;
      break;
    case ProcessCondition::ended:
      verdict.kind = VerdictKind::dead;
      if (verdict.reason.empty()) verdict.reason = "its process has ended";
      break;
    case ProcessCondition::unreachable:
      verdict.kind = VerdictKind::unreachable;
      break;
    case ProcessCondition::silent:
      verdict.kind = VerdictKind::frozen;
      verdict.reason = "it does not answer, although its host does";
      break;
    case ProcessCondition::unknown:
      verdict.kind = VerdictKind::unreachable;
      verdict.reason = "it does not answer, and no rank could see why";
      break;
  }
}

}  // namespace tutti
