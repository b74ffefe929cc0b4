// The verdict about a rank that others miss: its state, its process and its last operations. A value, from which
// the text of an error and its JSON come. Knows no connection and no group.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

namespace tutti {

enum class VerdictKind : std::uint8_t {
  late,         // its process runs and waits in no operation
  elsewhere,    // it waits in another operation, or has called another one
  frozen,       // its process exists and does not run: stopped, traced, or in a frozen cgroup
  dead,         // its process has ended
  unreachable,  // its host does not answer, or a rank on the route to it does not
};
inline constexpr VerdictKind kLastVerdictKind = VerdictKind::unreachable;

// "late", "elsewhere", ...: stable words for JSON.
std::string_view to_string(VerdictKind kind);

// The last completed operation of a rank in one of its groups.
struct CompletedCall {
  std::uint64_t context = 0;  // of the group
  std::uint32_t sequence = 0;
  bool is_report = false;  // the rank has told it; later ones are possible
  std::string call;        // "allreduce of 4 f32, sum"
  static auto fields(auto& self) { return std::tie(self.context, self.sequence, self.is_report, self.call); }
};
struct CompletedCalls {
  std::vector<CompletedCall> calls;
  static auto fields(auto& self) { return std::tie(self.calls); }
};

// Ranks of the world are the same on all ranks; -1 and 0: not known.
struct RankVerdict {
  VerdictKind kind = VerdictKind::late;
  std::int32_t world_rank = -1;
  std::int32_t group_rank = -1;  // in the group whose operation failed
  std::int32_t pid = 0;
  std::int32_t signal = 0;  // that has killed or stopped it
  std::int32_t exit_status = -1;
  std::int32_t cause_rank = -1;          // rank of the world: this state is a consequence of that rank's
  std::uint32_t completed_sequence = 0;  // its last completed operation of that group; 0: none, or not known
  bool completed_is_report = false;      // CompletedCall::is_report
  std::string completed_call;            // "allreduce of 4 f32, sum"; empty: not known
  std::string host;
  std::string reason;     // "killed by signal 9 (SIGKILL)"
  std::string operation;  // elsewhere: "barrier, operation 3 of the group of world ranks 0, 2"
  std::string awaited;    // the operation that it is missed in: "operation 7: allreduce of 4 f32, sum"
  std::string completed;  // encode(CompletedCalls), while the verdict is about no group; else empty
  static auto fields(auto& self) {
    return std::tie(self.kind, self.world_rank, self.group_rank, self.pid, self.signal, self.exit_status,
                    self.cause_rank, self.completed_sequence, self.completed_is_report, self.completed_call,
                    self.host, self.reason, self.operation, self.awaited, self.completed);
  }
  bool is_valid() const { return kind <= kLastVerdictKind; }
  bool operator==(const RankVerdict&) const = default;
};

void set_completed(const CompletedCall& call, RankVerdict& verdict);
// Fills in the last completed operation in the group of `context`, where it is among those that came with the verdict.
void count_completed(std::uint64_t context, RankVerdict& verdict);

// "rank 2 (rank 3 of the world, pid 12 on node1)"
std::string name_rank(const RankVerdict& verdict);
// "rank 2 (pid 12 on node1) is frozen: stopped by signal 19 (SIGSTOP); last completed: operation 6, ..."
std::string to_text(const RankVerdict& verdict);
// All of them; those that cannot be reached because of one rank share a clause.
std::string to_text(const std::vector<RankVerdict>& verdicts);

// "signal 9 (SIGKILL)"
std::string name_signal(int signal);

}  // namespace tutti
