// Arrivals, gathers and stamps of a world. Knows no connection; see control_root.hpp.
#include "runtime/job/control_root.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/job/control_channel.hpp"

namespace tutti {
namespace {

constexpr std::size_t kMaxStampedGroups = 4096;

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
  const Place& place = places_[static_cast<std::size_t>(claim.rank)];
  if (claim.is_moving && place.presence == Presence::present) return {};
  if (claim.is_moving)
    return refused(fmt::format("the job goes on without rank {}, which was lost before", claim.rank));
  if (place.presence != Presence::absent) {
    return refused(fmt::format(
        "rank {} of this job has joined already ({}); every process needs a rank of its own (RANK)",
        claim.rank, place.who));
  }
  return {};
}

void ControlRoot::admit(const MemberClaim& claim) {
  Place& place = places_[static_cast<std::size_t>(claim.rank)];
  place.presence = Presence::present;
  place.who = describe_process(claim);
  place.cause.clear();
  ++present_count_;
  was_complete_ = was_complete_ || is_complete();
}

std::vector<int> ControlRoot::absent_ranks() const {
  std::vector<int> ranks, impatient;
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    if (places_[rank].presence != Presence::absent) continue;
    (places_[rank].has_given_up ? impatient : ranks).push_back(static_cast<int>(rank));
  }
  return ranks.empty() ? impatient : ranks;
}

void ControlRoot::on_gone(int rank, bool is_dead, const std::string& text) {
  if (!is_present(rank)) return;
  Place& place = places_[static_cast<std::size_t>(rank)];
  on_attached(rank);  // it is no longer between two ways
  --present_count_;
  if (!was_complete_) {  // it gave up waiting or crashed; another process may take its place until the
                         // deadline
    place.presence = Presence::absent;
    place.has_given_up = !is_dead;
    if (is_dead) place.cause = text;
    place.died = Clock::now();
    return;
  }
  place.presence = is_dead ? Presence::dead : Presence::departed;
  place.cause = text;
  if (is_dead) {
    const FailurePayload failure{0, rank, rank, StatusCode::peer_failed, text};
    router_.send_to_all(Frame{FrameType::failure, 0, 0, encode(failure)});
  }
  if (!is_dead) departures_.ranks.push_back(rank);
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, gather] : gathers_) numbers.push_back(number);
  for (const std::uint64_t number : numbers) settle(number, gathers_[number]);
}

void ControlRoot::on_adrift(int rank, bool is_dead, const std::string& text, Clock::time_point until) {
  if (!is_present(rank)) return;
  if (const auto found = reported_.find(rank); found != reported_.end())
    return on_gone(rank, true, std::string(found->second));
  adrift_[rank] = {until, is_dead, text};
}

void ControlRoot::on_attached(int rank) {
  adrift_.erase(rank);
  reported_.erase(rank);
}

void ControlRoot::on_reported(const GonePayload& gone) {
  if (!gone.is_dead || !was_complete_ || !is_present(gone.rank)) return;
  if (adrift_.count(gone.rank) > 0) return on_gone(gone.rank, true, gone.text);
  reported_[gone.rank] = gone.text;
}

Status ControlRoot::find_loss(Clock::time_point since) const {
  const Place* first = nullptr;  // that has died, with others perhaps that it led
  for (const Place& place : places_) {
    const bool is_lost = place.presence == Presence::absent && !place.cause.empty() && place.died <= since;
    if (is_lost && (first == nullptr || place.died < first->died)) first = &place;
  }
  if (first == nullptr) return {};
  return Status(StatusCode::peer_failed, first->cause, static_cast<int>(first - places_.data()));
}

void ControlRoot::drop_overdue(Clock::time_point now) {
  const std::map<int, Adrift> adrift = adrift_;
  for (const auto& [rank, how] : adrift) {
    if (how.until > now) continue;
    adrift_.erase(rank);
    on_gone(rank, how.is_dead, how.text);
  }
}

Clock::time_point ControlRoot::next_overdue() const {
  Clock::time_point next = Clock::time_point::max();
  for (const auto& [rank, how] : adrift_) next = std::min(next, how.until);
  return next;
}

void ControlRoot::on_gather(const EntriesPayload& payload) {
  Gather& gather = gathers_[payload.number];
  gather.values.resize(places_.size());
  for (const auto& [rank, value] : payload.entries) {
    if (rank < 0 || rank >= size()) continue;
    std::optional<std::string>& place = gather.values[static_cast<std::size_t>(rank)];
    if (place.has_value()) continue;
    place = value;
    ++gather.arrived;
  }
  settle(payload.number, gather);
}

// Answers a gather that is complete, or that can never be because a rank has gone.
void ControlRoot::settle(std::uint64_t number, Gather& gather) {
  if (gather.arrived == places_.size()) {
    GatherPayload all{number, {}};
    for (auto& value : gather.values) all.values.push_back(*std::move(value));
    gathers_.erase(number);
    return router_.send_to_all(Frame{FrameType::gathered, 0, 0, encode(all)});
  }
  if (gather.is_failed) return;
  for (const int rank : ranks_not_in(gather)) {
    const Place& place = places_[static_cast<std::size_t>(rank)];
    if (place.presence != Presence::departed && place.presence != Presence::dead) continue;
    gather.is_failed = true;
    std::string text = place.cause;
    if (place.presence == Presence::departed)
      text =
          fmt::format("rank {} has left the world{}{}", rank, place.cause.empty() ? "" : ": ", place.cause);
    return router_.send_to_all(
        Frame{FrameType::gather_failed, rank, 0, encode(GatherPayload{number, {text}})});
  }
}

std::vector<int> ControlRoot::ranks_not_in(const Gather& gather) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < places_.size(); ++rank) {
    if (rank >= gather.values.size() || !gather.values[rank]) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void ControlRoot::on_who(int source, std::uint64_t number) {
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
  if (failure.group == 0 || stamped_.size() >= kMaxStampedGroups) return;
  failure.dead_rank = -1;
  if (!stamped_.emplace(failure.group, failure).second) return;  // a cause was stamped before
  router_.send_to_all(Frame{FrameType::failure, 0, 0, encode(failure)});
}

}  // namespace tutti
