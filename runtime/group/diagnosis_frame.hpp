// Messages between ranks about operations that do not end, and about members of new groups, as payload of the
// control tree. Pure; knows no group and no connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/base/process_state.hpp"
#include "runtime/base/status.hpp"
#include "runtime/scheduler/submitted_calls.hpp"

namespace tutti {

// An operation that a rank has under way.
struct WaitingCall {
  std::uint64_t context = 0;     // of its group
  std::vector<int> world_ranks;  // the group's members
  int awaited_world_rank = -1;   // whose message or flag is awaited; -1: any member's
  std::uint32_t sequence = 0;    // 0: a message between two ranks
  std::string text;              // "allreduce of 4 f32, sum, operation 3"
};

// The progress of a rank in a group: its answer to a query, or the reason why there is none.
struct RankState {
  bool has_answered = false;
  ProcessState process;    // of a rank that has not answered, as a rank near it sees it
  CompletedCall recorded;  // its last completed operation in that group, by its record; sequence 0: not known
  bool has_group = false;
  Status failure;        // the failure of the group there; ok: not failed
  std::string behind;    // not reachable: this rank on the route to it does not answer
  int behind_rank = -1;  // its number in the group; -1: it is no member
  int behind_world_rank = -1;
  CallHistory calls;                 // in that group, the last ones
  std::vector<WaitingCall> waiting;  // in any group
  // Last completed operations in that group of ranks on other machines, by rank of the world, as they have reported
  // them to a rank that inspects for others; of a rank that is behind another one: its own alone.
  std::vector<std::pair<std::int32_t, CompletedCall>> reported;

  std::uint32_t sequence() const { return calls.empty() ? 0 : calls.back().sequence; }
};

// A collective of a group, or of a stream.
struct CallId {
  std::uint64_t context = 0;
  std::uint32_t sequence = 0;  // 0: none
  bool operator==(const CallId&) const = default;
};
struct StallReport {
  std::uint64_t context = 0;
  CallHistory calls;  // of the stalled rank, the last ones
  // Of a rank on which one thread makes all calls: the operation that this thread waits in; 0: not known.
  std::uint32_t awaited = 0;
  CallId uncalled;  // the receiver waits in it, and the sender has not called it; none if it did not ask
};
struct StateQuestion {
  std::uint64_t inquiry = 0, context = 0;
  std::uint32_t calls = 1;      // the most that the answer may list
  std::int32_t inspected = -1;  // rank of the world, whose process the receiver shall inspect; -1: none
  static auto fields(auto& self) { return std::tie(self.inquiry, self.context, self.calls, self.inspected); }
};
struct StateAnswer {
  std::uint64_t inquiry = 0;
  RankState state;
};
// A rank has reached this step of making a group. From the group's first rank: all members have.
struct MemberArrival {
  std::uint64_t context = 0;
  std::uint32_t step = 0;
  static auto fields(auto& self) { return std::tie(self.context, self.step); }
};
// The last completed operations of a rank, in all its groups.
struct RankReport {
  std::int32_t world_rank = -1;
  std::vector<CompletedCall> calls;
};
// Of ranks on the sender's machine. Nobody there could tell them once that machine is lost.
struct MachineReport {
  std::vector<RankReport> ranks;
};
using DiagnosisMessage = std::variant<StallReport, StateQuestion, StateAnswer, MemberArrival, MachineReport>;

inline constexpr std::size_t kMaxWaitingCalls = 4;  // in one answer
inline constexpr std::size_t kReportedCalls = 16;   // of a stalled rank

std::string encode_diagnosis(const DiagnosisMessage& message);
// nullopt for bytes that encode_diagnosis() does not write.
std::optional<DiagnosisMessage> decode_diagnosis(std::string_view bytes);

}  // namespace tutti
