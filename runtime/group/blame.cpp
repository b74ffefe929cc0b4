// Failure of a group on all its ranks and the rank that it blames: deaths and departures of members, origins
// of lost connections. Knows no transport.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/base/log.hpp"
#include "runtime/group/comm_group.hpp"
#include "runtime/net/network.hpp"

namespace tutti {
namespace {

// A transport often sees a death before the control channel does; the better cause is worth a short wait.
constexpr std::chrono::milliseconds kVerdictTime{500};
constexpr std::chrono::milliseconds kDecisionTime{1000};
constexpr std::chrono::milliseconds kAnswerTime{300};

// Neither process is gone. This one may have run into its limit, which libraries that make connections do not tell.
Status describe_lost_connection(int own, int other) {
  const std::string lack = describe_lack_of_descriptors();
  if (lack.empty())
    return Status(StatusCode::peer_failed,
                  fmt::format("the connection to rank {} was lost, but its process is alive", other), other);
  return Status(
      StatusCode::resource_exhausted,
      fmt::format("rank {} lost its connection to rank {}, and lacks descriptors: {}", own, other, lack),
      own);
}

}  // namespace

Status CommGroup::Impl::count_death(int world_rank, const Status& cause) const {
  std::vector<RankVerdict> verdicts = cause.verdicts();
  for (RankVerdict& verdict : verdicts) {
    verdict.group_rank = group_rank_of(verdict.world_rank);
    count_completed(context(), verdict);
  }
  const std::string text = verdicts.empty() ? "of the world, " + cause.message() : to_text(verdicts);
  return Status(cause.code(), text, group_rank_of(world_rank)).with_verdicts(std::move(verdicts));
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
    if (group.decided_) return *group.decided_;
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
    if (state == states.end() || !state->second.has_answered) break;
    if (!state->second.has_group) return left(blamed, "group");
    const Status& failure = state->second.failure;
    // It blames this rank, and knows no more. Another reason, as a record that does not verify, is the cause.
    if (failure || (failure.peer() == rank_ && failure.code() == StatusCode::peer_failed)) {
      return describe_lost_connection(rank_, blamed);
    }
    cause = failure;  // it failed earlier, so its cause is nearer to the origin
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

void CommGroup::Impl::on_failure(const Status& cause) {
  Impl& group = owner();
  {
    const std::lock_guard lock(group.failure_mutex_);
    if (group.decided_) return;
    group.decided_ = cause;
  }
  group.fail_streams(cause);
  group.failed_.notify_all();
}

void CommGroup::Impl::fail_streams(const Status& cause) {
  // Members forward an abort. Other causes must not overtake the last message of an operation.
  const auto fail = [&](GroupContext& group) {
    cause.code() == StatusCode::aborted ? group.fail_for_all(cause) : group.fail(cause);
  };
  fail(*group_);
  const std::lock_guard lock(streams_mutex_);
  for (const auto& [number, stream] : streams_) fail(*stream->group_);
}

void CommGroup::Impl::announce(const Status& cause) {
  Impl& group = owner();
  if (!group.is_announced_.exchange(true, std::memory_order_relaxed))
    world_->control().abort(group.context(), cause);
}

void CommGroup::Impl::abort(const Status& cause) {
  announce(cause);
  // The route over rank 0 may be blocked, so members also tell each other.
  Impl& group = owner();
  group.fail_streams(cause);
  group.group_->tell_members();
  std::vector<std::shared_ptr<Impl>> streams;
  {
    const std::lock_guard lock(group.streams_mutex_);
    for (const auto& [number, stream] : group.streams_) streams.push_back(stream);
  }
  for (const auto& stream : streams) stream->group_->tell_members();
  static_cast<void>(fail_everywhere(cause));
}

std::optional<Status> CommGroup::Impl::wait_for_decision(std::chrono::milliseconds at_most) {
  Impl& group = owner();
  std::unique_lock lock(group.failure_mutex_);
  wait_for(group.failed_, lock, at_most, [&] { return group.decided_.has_value(); });
  return group.decided_;
}

Status CommGroup::Impl::fail_everywhere(const Status& cause) {
  Impl& group = owner();
  announce(cause);
  const bool has_root = world_->has_root();
  std::optional<Status> decided = wait_for_decision(has_root ? kAnswerTime : std::chrono::milliseconds(0));
  if (!decided && has_root && world_->find_root()) decided = wait_for_decision(kDecisionTime);
  if (decided) return *decided;
  // A later decision no longer changes the cause here: the file and all calls of this rank name the same. It holds for
  // mates below this rank, too: its program may end now, and they could not ask it about rank 0 any more.
  world_->control().settle(group.context(), cause);
  world_->note_failure(group.context(), cause);
  on_failure(cause);
  return group.local_failure();
}

std::optional<Status> CommGroup::Impl::failure() {
  if (!group_->has_failed()) return std::nullopt;
  const std::optional<Status> decided = wait_for_decision(std::chrono::milliseconds(0));
  return decided ? *decided : group_->failure();
}

Status CommGroup::Impl::settle(const Status& status) {
  if (!group_->has_failed()) return status;  // the caller's mistake; the group goes on
  if (is_closed_.load(std::memory_order_acquire)) return group_->failure();
  if (const std::optional<Status> decided = wait_for_decision(std::chrono::milliseconds(0))) return *decided;
  Status found = group_->failure();
  if (found.code() == StatusCode::peer_failed) {
    Impl& group = owner();
    std::unique_lock lock(group.failure_mutex_);
    wait_for(group.failed_, lock, kVerdictTime,
             [&] { return group.decided_.has_value() || has_departed(found.peer()); });
    if (group.decided_) return *group.decided_;
    lock.unlock();
    found = find_origin(found);
  }
  found = explain_mismatch(found);
  if (stream_ == 0 || found.code() != StatusCode::mismatch) return fail_everywhere(found);
  return fail_everywhere(found.with_context(fmt::format("stream {}", stream_)));
}

void CommGroup::Impl::on_deadline(std::uint32_t sequence, const std::string& call) {
  if (group_->has_failed()) return;
  static_cast<void>(
      time_out(sequence, Status(StatusCode::timeout, call + " is not complete yet"), group_->timeout()));
}

void CommGroup::Impl::leave() {
  const Status why(StatusCode::aborted, "this process is ending while operations are under way");
  if (!group_->leave(why)) log_info("a group is left as it is: its threads are busy while the process ends");
}

}  // namespace tutti
