// Questions and answers between ranks about operations that do not end, and arrivals at new groups, as bytes
// of the control tree's messages. Pure; knows no group and no connection.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/scheduler/submitted_calls.hpp"

namespace tutti {

// An operation that a rank has under way.
struct WaitingCall {
  std::uint64_t context = 0;     // of its group
  std::vector<int> world_ranks;  // the group's members
  int awaited_world_rank = -1;   // whose message or flag comes next; -1: any member's
  std::string text;              // "allreduce of 4 f32, sum, operation 3"
};

// The answer of a rank that is asked how far it has come in a group.
struct RankState {
  bool has_group = false;
  Status failure;                    // why the group has failed there; ok: it has not
  std::string behind;                // it could not be asked: this rank on the way to it does not answer
  int behind_rank = -1;              // its number in the group; -1: it is no member
  CallHistory calls;                 // in that group, the last ones
  std::vector<WaitingCall> waiting;  // in any group

  std::uint32_t sequence() const { return calls.empty() ? 0 : calls.back().sequence; }
};

struct StallReport {
  std::uint64_t context = 0;
  CallHistory calls;  // of the stalled rank, the last ones
};
struct StateQuestion {
  std::uint64_t inquiry = 0, context = 0;
  std::uint32_t calls = 1;  // at most so many are to be told
};
struct StateAnswer {
  std::uint64_t inquiry = 0;
  RankState state;
};
// A rank has come to this step of making a group, or, from the group's first rank: all have.
struct MemberArrival {
  std::uint64_t context = 0;
  std::uint32_t step = 0;
};
using DiagnosisMessage = std::variant<StallReport, StateQuestion, StateAnswer, MemberArrival>;

inline constexpr std::size_t kMaxWaitingCalls = 4;  // in one answer

std::string encode(const DiagnosisMessage& message);
// Nothing for bytes that no encode() gives.
std::optional<DiagnosisMessage> decode_diagnosis(std::string_view bytes);

}  // namespace tutti
