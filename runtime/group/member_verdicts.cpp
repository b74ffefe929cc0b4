// Verdicts about members that an operation waits for, from their answers. Part of WorldState; knows no transport.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "runtime/base/rank_lists.hpp"
#include "runtime/group/world.hpp"

namespace tutti {
namespace {

// The last operation of the group of `context` that the rank has completed.
void note_completed(std::uint64_t context, const RankState& state, RankVerdict& verdict) {
  std::uint32_t completed = state.sequence();
  for (const WaitingCall& call : state.waiting) {
    if (call.context == context && call.sequence != 0) completed = std::min(completed, call.sequence - 1);
  }
  verdict.completed_sequence = completed;
  for (const SubmittedCall& call : state.calls) {
    if (call.sequence == completed) verdict.completed_call = describe_contract(call.kind, call.count);
  }
}

// The member with the least value is named as the cause. A silent rank that cannot go on comes before one that may only
// be busy. Ranks that answer come after both, those with the fewest calls first.
std::int64_t order_of_blame(const RankVerdict& verdict, const RankState& state) {
  if (state.has_answered) return state.sequence();
  return verdict.kind == VerdictKind::late ? -1 : -2;
}

// Marks the verdicts about ranks that wait for the first one, or for a rank that does.
void mark_consequences(const std::map<int, RankState>& states, std::vector<RankVerdict>& verdicts) {
  std::vector<int> causes{verdicts.front().world_rank};
  for (std::size_t i = 0; i < causes.size(); ++i) {
    for (RankVerdict& verdict : verdicts) {
      if (verdict.cause_rank >= 0 || verdict.world_rank == causes.front()) continue;
      const auto state = states.find(verdict.group_rank);
      if (state == states.end()) continue;
      const bool waits = std::ranges::any_of(state->second.waiting, [&](const WaitingCall& call) {
        return call.awaited_world_rank == causes[i];
      });
      if (!waits) continue;
      verdict.cause_rank = causes.front();
      causes.push_back(verdict.world_rank);
    }
  }
}

}  // namespace

std::string WorldState::describe_waiting(std::uint64_t context, const RankState& state) {
  const std::lock_guard lock(groups_mutex_);
  for (const WaitingCall& call : state.waiting) {
    if (call.context == context) continue;
    std::string text = fmt::format("{} of {}", call.text, name_group(call.world_ranks));
    if (std::ranges::find(call.world_ranks, info().rank) == call.world_ranks.end()) return text;
    if (find(call.context) != nullptr)
      return text + ", which has this rank, too: the ranks use their groups in different orders";
    return text +
           ", which this rank is to be in but has not made: create was called with other ranks or another "
           "tag, or not as often";
  }
  for (const WaitingCall& call : state.waiting) return call.text;  // of this group: it waits for others
  return {};
}

RankVerdict WorldState::judge_member(std::uint64_t context, int group_rank, const RankState& state) {
  RankVerdict verdict;
  verdict.group_rank = group_rank;
  {
    const std::lock_guard lock(groups_mutex_);
    const GroupMember* group = find(context);
    if (group != nullptr) verdict.world_rank = group->world_ranks()[static_cast<std::size_t>(group_rank)];
  }
  if (verdict.world_rank >= 0) {
    const auto rank = static_cast<std::size_t>(verdict.world_rank);
    verdict.pid = info().pid_of_rank[rank];
    verdict.host = info().host_of_rank[rank];
  }
  if (!state.behind.empty()) {
    verdict.kind = VerdictKind::unreachable;
    verdict.cause_rank = state.behind_world_rank;
    for (const auto& [rank, call] : state.reported) set_completed(call, verdict);
    note_recorded(context, verdict);
    return verdict;
  }
  if (!state.has_answered) {
    judge(state.process, verdict);
    set_completed(state.recorded, verdict);
    note_recorded(context, verdict);
    return verdict;
  }
  note_completed(context, state, verdict);
  verdict.operation = describe_waiting(context, state);
  if (!verdict.operation.empty()) verdict.kind = VerdictKind::elsewhere;
  if (!state.has_group) {
    verdict.reason = "it is alive but has left the group or not made it yet";
  } else if (state.calls.empty()) {
    verdict.reason = "it is alive but has called nothing yet";
  } else if (verdict.operation.empty()) {
    verdict.reason = "it is alive and waits in no call";
  }
  return verdict;
}

std::optional<CompletedCalls> WorldState::read_recorded(int world_rank) const {
  if (record_ == nullptr || world_rank < 0 || world_rank >= info().size) return std::nullopt;
  const std::vector<int>& machines = info().machine_of_rank;
  if (machines[static_cast<std::size_t>(world_rank)] != machines[static_cast<std::size_t>(info().rank)])
    return std::nullopt;
  const auto last = record_->read_last_calls(world_rank);
  if (!last) return std::nullopt;
  CompletedCalls completed;
  for (const record::LastCall& call : *last) {
    completed.calls.push_back({call.context, static_cast<std::uint32_t>(call.sequence), false,
                               describe_contract(call.kind, call.count)});
  }
  return completed;
}

CompletedCalls WorldState::read_completed(int world_rank) const {
  std::optional<CompletedCalls> recorded = read_recorded(world_rank);
  return recorded ? *std::move(recorded) : machine_reports_.of(world_rank);
}

void WorldState::note_recorded(std::uint64_t context, RankVerdict& verdict) const {
  if (verdict.completed_sequence != 0) return;
  for (const CompletedCall& call : read_completed(verdict.world_rank).calls) {
    if (call.context == context) set_completed(call, verdict);
  }
}

void WorldState::on_loss(RankVerdict& verdict) {
  verdict.completed = encode(read_completed(verdict.world_rank));
}

// A neighbour keeps what it gets until this machine is lost, if it is ever.
void WorldState::on_second(const std::vector<int>& neighbours) {
  if (record_ == nullptr || neighbours.empty()) return;
  MachineReport report;
  for (int rank = 0; rank < info().size; ++rank) {
    if (std::optional<CompletedCalls> recorded = read_recorded(rank))
      report.ranks.push_back({rank, std::move(recorded->calls)});
  }
  const std::string message = encode_diagnosis(report);
  for (const int neighbour : neighbours) {
    if (machine_reports_.is_news(neighbour, message)) control().tell(neighbour, message);
  }
}

void WorldState::on_machine_report(int source, MachineReport report) {
  const std::vector<int>& machines = info().machine_of_rank;
  if (source < 0 || source >= info().size) return;
  std::erase_if(report.ranks, [&](const RankReport& rank) {
    return rank.world_rank < 0 || rank.world_rank >= info().size ||
           machines[static_cast<std::size_t>(rank.world_rank)] != machines[static_cast<std::size_t>(source)];
  });
  machine_reports_.take(std::move(report));
}

std::vector<RankVerdict> WorldState::find_missing(std::uint64_t context,
                                                  const std::map<int, RankState>& states,
                                                  std::uint32_t sequence) {
  std::vector<RankVerdict> verdicts;
  std::size_t blamed = 0;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (const auto& [rank, state] : states) {
    const bool is_hidden = !state.behind.empty();
    if (state.has_answered && state.has_group && state.sequence() >= sequence) continue;
    verdicts.push_back(judge_member(context, rank, state));
    const std::int64_t order = order_of_blame(verdicts.back(), state);
    if (is_hidden || order >= least) continue;
    least = order;
    blamed = verdicts.size() - 1;
  }
  // The rank on the route that does not answer need not be a member.
  for (const auto& [rank, state] : states) {
    const auto is_listed = [missing = state.behind_world_rank](const RankVerdict& v) {
      return v.world_rank == missing;
    };
    if (state.behind.empty() || std::ranges::any_of(verdicts, is_listed)) continue;
    RankVerdict obstacle;
    const auto at = static_cast<std::size_t>(state.behind_world_rank);
    obstacle.world_rank = state.behind_world_rank;
    obstacle.pid = info().pid_of_rank[at];
    obstacle.host = info().host_of_rank[at];
    judge(state.process, obstacle);
    set_completed(state.recorded, obstacle);
    const std::int64_t order = order_of_blame(obstacle, state);
    verdicts.push_back(std::move(obstacle));
    if (order < least) blamed = verdicts.size() - 1, least = order;
  }
  if (verdicts.empty()) return verdicts;
  std::rotate(verdicts.begin(), verdicts.begin() + static_cast<std::ptrdiff_t>(blamed),
              verdicts.begin() + static_cast<std::ptrdiff_t>(blamed) + 1);
  mark_consequences(states, verdicts);
  return verdicts;
}

}  // namespace tutti
