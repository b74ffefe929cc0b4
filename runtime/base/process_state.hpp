// The state of another process of this machine, as /proc and the kernel's socket tell it. Knows no rank.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>

#include "runtime/base/verdict.hpp"

namespace tutti {

enum class ProcessCondition : std::uint8_t {
  unknown,      // not visible from here
  runs,         // running, or asleep in a system call
  frozen,       // stopped, traced, or in a frozen cgroup
  ended,        // has ended, or is just ending
  silent,       // its host acknowledges, and it does not answer
  unreachable,  // its host does not acknowledge
};

struct ProcessState {
  ProcessCondition condition = ProcessCondition::unknown;
  std::int32_t signal = 0;        // that has stopped or killed it
  std::int32_t exit_status = -1;  // if it has ended otherwise; -1: not known
  std::string reason;             // for people: "stopped by signal 19 (SIGSTOP)"
  static auto fields(auto& self) {
    return std::tie(self.condition, self.signal, self.exit_status, self.reason);
  }
  bool is_valid() const { return condition <= ProcessCondition::unreachable; }
  bool operator==(const ProcessState&) const = default;
};

// The state of a process of this pid namespace, of this user. Reads some files of /proc and cgroups.
ProcessState inspect_process(int pid);
// The process at the other end of a unix socket: also how it has ended, for as long as the kernel knows.
ProcessState inspect_peer(int fd, int pid);
// The host at the other end of a TCP socket on which something was sent: unreachable if it acknowledges
// nothing, else silent.
ProcessState inspect_remote(int fd);
// From a status as wait(2) returns it.
ProcessState state_of_end(int wait_status);

// The kind of verdict that the state means for a rank that does not answer, its signal, exit status and reason.
void judge(const ProcessState& state, RankVerdict& verdict);

// For tests: whether the lines of /proc/PID/cgroup name a frozen cgroup below `root` (/sys/fs/cgroup).
std::string find_frozen_cgroup(std::string_view lines, const std::string& root);

}  // namespace tutti
