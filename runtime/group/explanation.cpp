// Explains operations that do not end and calls that differ, from answers of members. Part of
// CommGroup::Impl.
#include <algorithm>

#include <fmt/format.h>

#include "runtime/group/comm_group.hpp"

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kAnswerTime{300};
constexpr std::size_t kMostMessages = 16;  // that are inspected, and peers that are asked

}  // namespace

Status CommGroup::Impl::explain_mismatch(const Status& found) {
  // Other ranks know nothing of a message between two ranks; in large groups two histories must suffice.
  constexpr int kMostAsked = 64;
  if (found.code() != StatusCode::mismatch || found.peer() < 0) return found;
  std::vector<int> asked;
  if (size() > kMostAsked) asked = {rank_, found.peer()};
  const auto difference = world_->compare_calls(context(), asked, kAnswerTime);
  if (!difference) return found;
  return Status(StatusCode::mismatch,
                fmt::format("ranks of one group made different calls: as operation {} {}",
                            difference->sequence, difference->text),
                difference->peer);
}

std::string CommGroup::Impl::describe_awaited(std::uint32_t sequence, int* first_missing) {
  if (sequence == 0) return describe_awaited_peers(first_missing);
  const auto states = world_->ask_members(context(), kAnswerTime);
  const std::string missing = world_->describe_missing(context(), states, size(), sequence, first_missing);
  return missing.empty() ? "all ranks have called it" : "did not arrive: " + missing;
}

// Follows the chain of waits from `peers` on. Returns a member that does not answer, else one that waits in
// no call, else -1 (ranks wait for each other).
int CommGroup::Impl::find_blocker(std::vector<int> peers, const std::map<int, RankState>& states) const {
  int idle = -1;
  for (std::size_t i = 0; i < peers.size(); ++i) {
    const auto found = states.find(peers[i]);
    if (found == states.end()) return peers[i];
    const RankState& state = found->second;
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
  for (const Stall& message : world_->engine().list_under_way(kMostMessages, kAnswerTime)) {
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
std::string CommGroup::Impl::describe_awaited_peers(int* first_missing) {
  const std::vector<int> peers = list_awaited_peers();
  if (peers.empty()) return {};
  const auto states = world_->ask_members(context(), kAnswerTime);
  const auto describe = [&](int peer) -> std::string {
    const auto state = states.find(peer);
    return state == states.end() ? "does not answer: frozen, or its node is unreachable"
                                 : world_->describe_peer(context(), state->second);
  };
  std::string text;
  for (const int peer : peers) {
    if (*first_missing < 0) *first_missing = peer;
    text += fmt::format("{}rank {} {}", text.empty() ? "" : ", ", peer, describe(peer));
  }
  const int blocker = find_blocker(peers, states);
  if (blocker < 0) return text;
  *first_missing = blocker;
  if (std::find(peers.begin(), peers.end(), blocker) != peers.end()) return text;
  return text + fmt::format("; all of that waits for rank {}, which {}", blocker, describe(blocker));
}

Status CommGroup::Impl::time_out(std::uint32_t sequence, const Status& status,
                                 std::chrono::milliseconds limit) {
  std::string text = fmt::format("{} within {}", status.message(), format_seconds(limit));
  int peer = sequence > 0 ? Status::kNoPeer : status.peer();  // of a message: the other side
  world_->note_deadline(context());
  const std::string awaited = describe_awaited(sequence, &peer);
  if (sequence > 0) text = fmt::format("{}: {}", name_operation(sequence), text);
  if (!awaited.empty()) text += "; " + awaited;
  return fail_everywhere(Status(StatusCode::timeout, text, peer));
}

}  // namespace tutti
