// Arrivals, gathers and causes of failure of a world. Knows no connection; see control_root.hpp.
#include "runtime/job/control_root.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/rank_lists.hpp"
#include "runtime/job/control_channel.hpp"

namespace tutti {
namespace {

constexpr std::size_t kMaxFailedGroups = 4096;

}  // namespace

Status ControlRoot::check(const MemberClaim& claim) const {
  const auto refused = [](std::string text) { return Status(StatusCode::refused, std::move(text)); };
  if (claim.size != size()) {
    return refused(fmt::format("rank {} expects {} ranks, rank 0 of the job expects {} (WORLD_SIZE)",
                               claim.rank, claim.size, size()));
  }
  if (claim.rank < 0 || claim.rank >= size()) {
    return refused(fmt::format("rank {} is not one of the job's {} ranks (RANK)", claim.rank, size()));
  }
  const Member& member = members_[static_cast<std::size_t>(claim.rank)];
  if (claim.is_moving && member.presence == Presence::present) return {};
  if (claim.is_moving)
    return refused(fmt::format("the job goes on without rank {}, which was lost before", claim.rank));
  const bool is_known = claim.is_again && member.presence == Presence::present;
  if (member.presence != Presence::absent && !is_known) {
    return refused(fmt::format(
        "rank {} of this job has joined already ({}); every process needs a rank of its own (RANK)",
        claim.rank, member.who));
  }
  return {};
}

void ControlRoot::admit(const MemberClaim& claim) {
  Member& member = members_[static_cast<std::size_t>(claim.rank)];
  if (member.presence != Presence::present) ++present_count_;
  member.presence = Presence::present;
  member.who = describe_process(claim);
  member.cause.clear();
  on_attached(claim.rank);
  was_complete_ = was_complete_ || is_complete();
}

std::vector<int> ControlRoot::absent_ranks() const {
  std::vector<int> ranks, impatient;
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    if (members_[rank].presence != Presence::absent) continue;
    (members_[rank].has_given_up ? impatient : ranks).push_back(static_cast<int>(rank));
  }
  return ranks.empty() ? impatient : ranks;
}

void ControlRoot::on_gone(const GonePayload& seen) {
  const int rank = seen.rank;
  const bool is_dead = seen.is_dead;
  if (!is_present(rank)) return;
  const auto report = reported_.find(rank);
  const GonePayload gone = is_dead && report != reported_.end() ? report->second : seen;
  Member& member = members_[static_cast<std::size_t>(rank)];
  on_attached(rank);  // it is no longer orphaned
  --present_count_;
  if (!was_complete_) {  // it gave up waiting or crashed; another process may replace it until the deadline
    member.presence = Presence::absent;
    member.has_given_up = !is_dead;
    if (is_dead) member.cause = gone.text;
    member.died = Clock::now();
    return;
  }
  member.presence = is_dead ? Presence::dead : Presence::departed;
  member.cause = gone.text;
  if (is_dead) router_.send_to_all(Frame{FrameType::failure, 0, 0, encode(make_death(gone))});
  if (!is_dead) departures_.ranks.push_back(rank);
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, gather] : gathers_) numbers.push_back(number);
  for (const std::uint64_t number : numbers) settle(number, gathers_[number]);
}

void ControlRoot::on_orphaned(const GonePayload& gone, Clock::time_point until) {
  if (!is_present(gone.rank)) return;
  if (const auto found = reported_.find(gone.rank); found != reported_.end())
    return on_gone(GonePayload(found->second));
  orphans_[gone.rank] = {until, gone};
}

void ControlRoot::on_attached(int rank) {
  orphans_.erase(rank);
  reported_.erase(rank);
}

// It led its node, and has died before it arrived here, or its connection has ended already: its mates know why.
void ControlRoot::note_early_death(const GonePayload& gone) {
  if (gone.rank < 0 || gone.rank >= size()) return;
  Member& member = members_[static_cast<std::size_t>(gone.rank)];
  if (member.cause.empty()) member.died = Clock::now();
  member.cause = gone.text;
}

void ControlRoot::on_reported(const GonePayload& gone) {
  if (!gone.is_dead || gone.may_return) return;
  if (!was_complete_ && !is_present(gone.rank)) return note_early_death(gone);
  if (!is_present(gone.rank)) return;
  if (orphans_.count(gone.rank) > 0) return on_gone(gone);
  reported_[gone.rank] = gone;
}

Status ControlRoot::find_loss(Clock::time_point since) const {
  const Member* first = nullptr;  // of the dead; its descendants may follow
  for (const Member& member : members_) {
    const bool is_lost = member.presence == Presence::absent && !member.cause.empty() && member.died <= since;
    if (is_lost && (first == nullptr || member.died < first->died)) first = &member;
  }
  if (first == nullptr) return {};
  return Status(StatusCode::peer_failed, first->cause, static_cast<int>(first - members_.data()));
}

void ControlRoot::drop_overdue(Clock::time_point now) {
  const std::map<int, Orphan> orphans = orphans_;
  for (const auto& [rank, how] : orphans) {
    if (how.until > now) continue;
    orphans_.erase(rank);
    on_gone(how.gone);
  }
}

Clock::time_point ControlRoot::next_overdue() const {
  Clock::time_point next = Clock::time_point::max();
  for (const auto& [rank, how] : orphans_) next = std::min(next, how.until);
  return next;
}

void ControlRoot::on_gather(const EntriesPayload& payload) {
  Gather& gather = gathers_[payload.number];
  gather.values.resize(members_.size());
  for (const auto& [rank, value] : payload.entries) {
    if (rank < 0 || rank >= size()) continue;
    std::optional<std::string>& entry = gather.values[static_cast<std::size_t>(rank)];
    if (entry.has_value()) continue;
    entry = value;
    ++gather.arrived;
  }
  settle(payload.number, gather);
}

// Answers a gather that is complete, or that cannot complete because a rank is gone.
void ControlRoot::settle(std::uint64_t number, Gather& gather) {
  if (gather.arrived == members_.size()) {
    GatherPayload all{number, {}};
    for (auto& value : gather.values) all.values.push_back(*std::move(value));
    gathers_.erase(number);
    return router_.send_to_all(Frame{FrameType::gathered, 0, 0, encode(all)});
  }
  if (gather.is_failed) return;
  for (const int rank : ranks_not_in(gather)) {
    const Member& member = members_[static_cast<std::size_t>(rank)];
    if (member.presence != Presence::departed && member.presence != Presence::dead) continue;
    gather.is_failed = true;
    std::string text = member.cause;
    if (member.presence == Presence::departed)
      text =
          fmt::format("rank {} has left the world{}{}", rank, member.cause.empty() ? "" : ": ", member.cause);
    return router_.send_to_all(
        Frame{FrameType::gather_failed, rank, 0, encode(GatherPayload{number, {text}})});
  }
}

std::vector<int> ControlRoot::ranks_not_in(const Gather& gather) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    if (rank >= gather.values.size() || !gather.values[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void ControlRoot::on_query_missing(int source, std::uint64_t number) {
  const auto found = gathers_.find(number);
  const std::vector<int> missing = number == 0               ? absent_ranks()
                                   : found == gathers_.end() ? std::vector<int>()
                                                             : ranks_not_in(found->second);
  if (missing.empty()) return;  // complete by now: the answer is on its way
  router_.send_to(source, Frame{FrameType::missing, missing.front(), source,
                                encode(GatherPayload{number, {name_ranks(missing, size())}})});
}

void ControlRoot::tell_departures() {
  if (departures_.ranks.empty()) return;
  router_.send_to_all(Frame{FrameType::departed, 0, 0, encode(std::exchange(departures_, {}))});
}

void ControlRoot::on_failure_request(FailurePayload failure) {
  if (failure.group == 0 || decided_.size() >= kMaxFailedGroups) return;
  failure.dead_rank = -1;
  if (!decided_.emplace(failure.group, failure).second) return;  // the first cause wins
  router_.send_to_all(Frame{FrameType::failure, 0, 0, encode(failure)});
}

}  // namespace tutti
