// Explains operations that do not end and calls that differ, from answers of members. Part of
// CommGroup::Impl.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "runtime/group/comm_group.hpp"

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kExplanationTime{300};
constexpr std::chrono::milliseconds kBusyExplanationTime{1000};  // where ranks are short of CPU time
constexpr std::uint32_t kComparedCalls = 4;  // of each rank: the last that is complete is among them
constexpr std::size_t kMostMessages = 16;    // that are inspected, and peers that are asked

}  // namespace

Status CommGroup::Impl::explain_mismatch(const Status& found) {
  // Other ranks know nothing of a message between two ranks; in large groups two histories must suffice.
  constexpr int kMostAsked = 64;
  if (found.code() != StatusCode::mismatch || found.peer() < 0) return found;
  std::vector<int> asked;
  if (size() > kMostAsked) asked = {rank_, found.peer()};
  const auto difference = world_->compare_calls(context(), asked, kExplanationTime);
  if (!difference) return found;
  return Status(StatusCode::mismatch,
                fmt::format("ranks of one group made different calls: as operation {} {}",
                            difference->sequence, difference->text),
                difference->peer);
}

// A rank that runs and does not answer may wait for a CPU, as may a leader that others are hidden behind. It is asked
// once more before it is blamed.
std::map<int, RankState> CommGroup::Impl::ask_all() const {
  const auto ask = [this](std::chrono::milliseconds at_most) {
    return world_->ask_members(context(), at_most, {}, kComparedCalls);
  };
  auto states = ask(kExplanationTime);
  const bool has_busy = std::ranges::any_of(states, [](const auto& entry) {
    return !entry.second.has_answered && entry.second.process.condition == ProcessCondition::runs;
  });
  return has_busy ? ask(kBusyExplanationTime) : states;
}

CommGroup::Impl::Awaited CommGroup::Impl::find_awaited(std::uint32_t sequence) {
  if (sequence == 0) return find_awaited_peers();
  const auto states = ask_all();
  Awaited awaited{"all ranks have called it", world_->find_missing(context(), states, sequence),
                  Status::kNoPeer};
  if (!awaited.verdicts.empty()) {
    awaited.text = "did not arrive: " + to_text(awaited.verdicts);
    return awaited;
  }
  awaited.peer = name_waits(states, sequence, awaited.text);
  return awaited;
}

// All members have called the operation, and it does not end: data do not come. Adds to the text whose data each waits
// for. Returns a member whose data are awaited, first one that waits for none itself; else kNoPeer.
int CommGroup::Impl::name_waits(const std::map<int, RankState>& states, std::uint32_t sequence,
                                std::string& text) const {
  std::vector<std::pair<int, int>> waits;  // who, for whom
  std::set<int> waiting;
  for (const auto& [rank, state] : states) {
    for (const WaitingCall& call : state.waiting) {
      if (call.context != context() || call.sequence != sequence) continue;
      waiting.insert(rank);
      const int awaited = call.awaited_world_rank < 0 ? -1 : group_rank_of(call.awaited_world_rank);
      if (awaited >= 0 && awaited != rank) waits.emplace_back(rank, awaited);
    }
  }
  std::ranges::stable_sort(waits, {}, [&](const auto& wait) { return waiting.contains(wait.second); });
  for (std::size_t i = 0; i < std::min(waits.size(), kMostMessages); ++i)
    text += fmt::format("{} rank {} waits for data of rank {}", i == 0 ? ";" : ",", waits[i].first,
                        waits[i].second);
  return waits.empty() ? Status::kNoPeer : waits.front().second;
}

// Follows the chain of waits from `peers` on. Returns a member that does not answer, else one that waits in
// no call, else -1 (ranks wait for each other).
int CommGroup::Impl::find_blocker(std::vector<int> peers, const std::map<int, RankState>& states) const {
  int idle = -1;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const auto found = states.find(peers[i]);
    if (found == states.end()) continue;
    const RankState& state = found->second;
    if (!state.has_answered && state.behind.empty()) return peers[i];
    if (!state.behind.empty()) {
      if (state.behind_rank >= 0) return state.behind_rank;
      continue;
    }
    if (state.waiting.empty() && idle < 0) idle = peers[i];
    for (const WaitingCall& call : state.waiting) {
      const int next = call.awaited_world_rank < 0 ? -1 : group_rank_of(call.awaited_world_rank);
      if (next >= 0 && next != rank_ && std::find(peers.begin(), peers.end(), next) == peers.end())
        peers.push_back(next);
    }
  }
  return idle;
}

// The ranks whose messages this group awaits.
std::vector<int> CommGroup::Impl::list_awaited_peers() const {
  std::vector<int> peers;
  for (const Stall& message : world_->engine().list_under_way(kMostMessages, kExplanationTime)) {
    if (message.context != context() || !message.is_message) continue;
    for (int peer = 0; peer < size() && peers.size() < kMostMessages; ++peer) {
      const bool is_awaited =
          peer == static_cast<int>(message.awaited_rank) || message.awaited_rank == message.rank;
      if (peer != rank_ && is_awaited && std::find(peers.begin(), peers.end(), peer) == peers.end())
        peers.push_back(peer);
    }
  }
  return peers;
}

// For a wait for messages: the state of the ranks that should send or receive, and the rank that blocks them.
CommGroup::Impl::Awaited CommGroup::Impl::find_awaited_peers() {
  const std::vector<int> peers = list_awaited_peers();
  if (peers.empty()) return {};
  const auto states = ask_all();
  const auto judge = [&](int peer) {
    const auto state = states.find(peer);
    return world_->judge_member(context(), peer, state == states.end() ? RankState() : state->second);
  };
  Awaited awaited;
  for (const int peer : peers) awaited.verdicts.push_back(judge(peer));
  awaited.text = to_text(awaited.verdicts);
  const int blocker = find_blocker(peers, states);
  if (blocker < 0) return awaited;
  const auto listed = std::find(peers.begin(), peers.end(), blocker) - peers.begin();
  if (listed == std::ssize(peers)) {
    awaited.verdicts.push_back(judge(blocker));
    awaited.text += "; all of that waits for " + to_text(awaited.verdicts.back());
  }
  std::rotate(awaited.verdicts.begin(), awaited.verdicts.begin() + listed,
              awaited.verdicts.begin() + listed + 1);
  const int cause = awaited.verdicts.front().world_rank;
  for (RankVerdict& verdict : awaited.verdicts) {
    if (verdict.world_rank != cause && verdict.cause_rank < 0) verdict.cause_rank = cause;
  }
  return awaited;
}

Status CommGroup::Impl::time_out(std::uint32_t sequence, const Status& status,
                                 std::chrono::milliseconds limit) {
  std::string text = fmt::format("{} within {}", status.message(), format_seconds(limit));
  world_->note_deadline(context());
  Awaited awaited = find_awaited(sequence);
  if (sequence > 0) text = fmt::format("{}: {}", name_operation(sequence), text);
  const std::string call = text;
  if (!awaited.text.empty()) text += "; " + awaited.text;
  // Of a message without a known state: the other side.
  int peer = sequence > 0 ? Status::kNoPeer : status.peer();
  if (awaited.peer != Status::kNoPeer) peer = awaited.peer;
  if (!awaited.verdicts.empty()) peer = awaited.verdicts.front().group_rank;
  for (RankVerdict& verdict : awaited.verdicts) verdict.awaited = call;
  return fail_everywhere(Status(StatusCode::timeout, text, peer).with_verdicts(std::move(awaited.verdicts)));
}

}  // namespace tutti
