// Whom a group blames for its failure: deaths and departures of members, and where a lost connection began.
// Knows no transport.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/group/comm_group.hpp"

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kAnswerTime{300};

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

}  // namespace tutti
