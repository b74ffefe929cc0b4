// Verdicts as text, and the states of processes that they come from.
#include "runtime/base/verdict.hpp"

#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "runtime/base/byte_fields.hpp"
#include "runtime/base/process_state.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;

namespace {

RankVerdict verdict_of(VerdictKind kind, int group_rank, int world_rank) {
  RankVerdict verdict;
  verdict.kind = kind;
  verdict.group_rank = group_rank;
  verdict.world_rank = world_rank;
  return verdict;
}

// A child that waits for a signal.
pid_t start_child() {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  for (;;) ::pause();
}

void write_file(const std::filesystem::path& path, const char* text) {
  std::filesystem::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

}  // namespace

TEST_CASE("a verdict names the rank of the group and of the world, the process and its last call") {
  RankVerdict verdict = verdict_of(VerdictKind::elsewhere, 1, 3);
  verdict.pid = 12;
  verdict.host = "node1";
  verdict.operation = "barrier, operation 2";
  verdict.completed_sequence = 6;
  verdict.completed_call = "allreduce of 4 f32, sum";
  CHECK(
      to_text(verdict) ==
      "rank 1 (rank 3 of the world, pid 12 on node1) is in another operation: barrier, operation 2; its last "
      "completed call was allreduce of 4 f32, sum, operation 6");
  CHECK(to_text(verdict_of(VerdictKind::late, 2, 2)) == "rank 2 is late");
}

TEST_CASE("ranks behind a silent rank share a clause, which says of a stranger to the group how it is") {
  RankVerdict cause = verdict_of(VerdictKind::frozen, 0, 4);
  cause.reason = "stopped";
  RankVerdict one = verdict_of(VerdictKind::unreachable, 1, 5),
              two = verdict_of(VerdictKind::unreachable, 2, 6);
  one.cause_rank = two.cause_rank = 4;
  CHECK(
      to_text(std::vector{cause, one, two}) ==
      "rank 0 (rank 4 of the world) is frozen: stopped; ranks 1, 2 cannot be reached, because the way there "
      "leads through rank 0");
  cause.group_rank = -1;
  CHECK(to_text(std::vector{cause, one}) ==
        "rank 1 cannot be reached, because the way there leads through rank 4 of the world, which is frozen: "
        "stopped");
}

TEST_CASE("a process runs, is stopped, or has ended by a signal") {
  const pid_t pid = start_child();
  REQUIRE(pid > 0);
  CHECK(inspect_process(pid).condition == ProcessCondition::runs);
  ::kill(pid, SIGSTOP);
  siginfo_t info{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &info, WSTOPPED | WNOWAIT) == 0);
  ProcessState state = inspect_process(pid);
  CHECK(state.condition == ProcessCondition::frozen);
  CHECK(state.reason == "stopped by signal 19 (SIGSTOP)");
  ::kill(pid, SIGKILL);
  REQUIRE(::waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOWAIT) == 0);  // it stays a zombie
  state = inspect_process(pid);
  CHECK(state.condition == ProcessCondition::ended);
  CHECK(state.signal == SIGKILL);
  ::waitpid(pid, nullptr, 0);
  state = inspect_process(pid);
  CHECK(state.condition == ProcessCondition::ended);
  CHECK(state.signal == 0);
  CHECK(inspect_process(0).condition == ProcessCondition::unknown);
  CHECK(state_of_end(3 << 8).exit_status == 3);
}

TEST_CASE("a frozen cgroup is found in both versions of cgroups") {
  std::string name = std::filesystem::temp_directory_path() / "tutti-cgroups-XXXXXX";
  REQUIRE(::mkdtemp(name.data()) != nullptr);
  const std::filesystem::path root = name;
  const std::string lines = "4:freezer:/job\n3:cpu,cpuacct:/job\n0::/user\nnonsense\n";
  CHECK(find_frozen_cgroup(lines, root).empty());
  write_file(root / "freezer/job/freezer.state", "THAWED\n");
  write_file(root / "unified/user/cgroup.events", "populated 1\nfrozen 0\n");
  CHECK(find_frozen_cgroup(lines, root).empty());
  write_file(root / "freezer/job/freezer.state", "FROZEN\n");
  CHECK(find_frozen_cgroup(lines, root) == "/job");
  write_file(root / "freezer/job/freezer.state", "THAWED\n");
  write_file(root / "user/cgroup.events", "populated 1\nfrozen 1\n");
  CHECK(find_frozen_cgroup(lines, root) == "/user");
  std::filesystem::remove_all(root);
}

TEST_CASE("a verdict that came with operations of several groups takes that of its own") {
  RankVerdict verdict = verdict_of(VerdictKind::dead, 2, 2);
  verdict.completed =
      encode(CompletedCalls{{{7, 3, false, "barrier"}, {9, 12, false, "allreduce of 4 f32, sum"}}});
  RankVerdict other = verdict, damaged = verdict;
  count_completed(9, verdict);
  CHECK(verdict.completed_sequence == 12);
  CHECK(to_text(verdict) ==
        "rank 2 is gone; its last completed call was allreduce of 4 f32, sum, operation 12");
  CHECK(verdict.completed.empty());
  count_completed(8, other);
  CHECK(other.completed_sequence == 0);
  other.completed = encode(CompletedCalls{{{9, 11, true, "barrier"}}});
  count_completed(9, other);
  CHECK(to_text(other) ==
        "rank 2 is gone; the last completed call that it has reported was barrier, operation 11");
  damaged.completed.pop_back();
  count_completed(9, damaged);
  CHECK(damaged.completed_sequence == 0);
}
