// Whom a group blames for its failure: deaths and departures of members, where a lost connection began, and
// who is missing at a deadline. Knows no transport.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/group/comm_group.hpp"

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kAnswerTime{300};
constexpr std::size_t kMostMessages = 16;  // whose peers are asked

}  // namespace

void CommGroup::Impl::on_death(int world_rank, const Status& cause) {
  bool counts_as_world = world_ranks_.size() == world_->peers().size();
  for (std::size_t rank = 0; rank < world_ranks_.size(); ++rank)
    counts_as_world = counts_as_world && world_ranks_[rank] == static_cast<int>(rank);
  const std::string text = (counts_as_world ? "" : "of the world, ") + cause.message();
  on_failure(Status(cause.code(), text, group_rank_of(world_rank)));
}

void CommGroup::Impl::on_departure(int world_rank) {
  Impl& group = owner();
  const std::lock_guard lock(group.failure_mutex_);
  group.departed_.push_back(group_rank_of(world_rank));
  group.failed_.notify_all();
}

Status CommGroup::Impl::local_failure() const {
  const Impl& group = owner();
  {
    const std::lock_guard lock(group.failure_mutex_);
    if (group.stamped_) return *group.stamped_;
  }
  if (group.group_->has_failed()) return group.group_->failure();
  const std::lock_guard lock(group.streams_mutex_);
  for (const auto& [number, stream] : group.streams_) {
    if (stream->group_->has_failed()) return stream->group_->failure();
  }
  return {};
}

bool CommGroup::Impl::has_departed(int rank) const {
  const std::vector<int>& departed = owner().departed_;
  return std::find(departed.begin(), departed.end(), rank) != departed.end();
}

Status CommGroup::Impl::find_origin(const Status& found) {
  Impl& group = owner();
  const auto left = [](int rank, const char* what) {
    return Status(StatusCode::peer_failed,
                  fmt::format("rank {} has left the {}, and an operation needs it", rank, what), rank);
  };
  const auto departed = [&](int rank) {
    const std::lock_guard lock(group.failure_mutex_);
    return has_departed(rank);
  };
  if (departed(found.peer())) return left(found.peer(), "world");
  const auto states = world_->ask_members(group.context(), kAnswerTime);
  Status cause = found;
  for (std::size_t hops = 0; hops < states.size(); ++hops) {
    const int blamed = cause.peer();
    if (cause.code() != StatusCode::peer_failed || blamed < 0 || blamed >= size()) return cause;
    if (departed(blamed)) return left(blamed, "world");
    const auto state = states.find(blamed);
    if (state == states.end() || !state->second.behind.empty()) break;
    if (!state->second.has_group) return left(blamed, "group");
    const Status& failure = state->second.failure;
    if (failure || failure.peer() == rank_) {
      return Status(StatusCode::peer_failed,
                    fmt::format("the connection to rank {} was lost, but its process is alive", blamed),
                    blamed);
    }
    cause = failure;  // it has failed before us, so what it blames is nearer to the origin
  }
  {
    const std::lock_guard lock(group.failure_mutex_);
    if (!group.departed_.empty()) return left(group.departed_.front(), "world");
  }
  if (cause.code() != StatusCode::peer_failed || world_->has_root()) return cause;
  return Status(
      cause.code(),
      cause.message() + "; why it is gone is not known, because rank 0 of the world does not answer",
      cause.peer());
}

std::string CommGroup::Impl::describe_awaited(std::uint32_t sequence, int* first_missing) {
  if (sequence == 0) return describe_awaited_peers(first_missing);
  const auto states = world_->ask_members(context(), kAnswerTime);
  const std::string missing = world_->describe_missing(context(), states, size(), sequence, first_missing);
  return missing.empty() ? "all ranks have called it" : "did not arrive: " + missing;
}

// Of messages: what those do that they wait for.
std::string CommGroup::Impl::describe_awaited_peers(int* first_missing) {
  std::vector<int> peers;
  for (const Stall& message : world_->engine().list_under_way(kMostMessages, kAnswerTime)) {
    const int peer = static_cast<int>(message.awaited_rank);
    if (message.context != context() || !message.is_message || peer == rank_) continue;
    if (std::find(peers.begin(), peers.end(), peer) == peers.end()) peers.push_back(peer);
  }
  if (peers.empty()) return {};  // from any source: the operation names who could send
  const auto states = world_->ask_members(context(), kAnswerTime, peers);
  std::string text;
  for (const int peer : peers) {
    const auto state = states.find(peer);
    std::string what = "does not answer: frozen, or its node is unreachable";
    if (state != states.end()) what = world_->describe_peer(context(), state->second);
    if (*first_missing < 0) *first_missing = peer;
    text += fmt::format("{}rank {} {}", text.empty() ? "" : ", ", peer, what);
  }
  return text;
}

Status CommGroup::Impl::time_out(std::uint32_t sequence, const Status& status,
                                 std::chrono::milliseconds limit) {
  std::string text = fmt::format("{} within {}", status.message(), format_seconds(limit));
  int peer = sequence > 0 ? Status::kNoPeer : status.peer();  // a message names its other end
  const std::string awaited = describe_awaited(sequence, &peer);
  if (sequence > 0) text = fmt::format("{}: {}", name_operation(sequence), text);
  if (!awaited.empty()) text += "; " + awaited;
  return fail_everywhere(Status(StatusCode::timeout, text, peer));
}

}  // namespace tutti
