// Waits for members, proposes and commits. See agreement_leader.hpp.
#include "runtime/job/agreement_leader.hpp"

#include <fmt/format.h>
#include <sodium.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/rank_lists.hpp"

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kProbeInterval{5};
constexpr std::chrono::seconds kLastWords{1};
constexpr std::chrono::milliseconds kJoinerTime{20};  // for processes in the queue to prove themselves

std::string random_job() {
  std::array<unsigned char, 16> bytes{};
  randombytes_buf(bytes.data(), bytes.size());
  return fmt::format("successor-{:02x}", fmt::join(bytes, ""));
}

}  // namespace

AgreementLeader::AgreementLeader(const AgreementOptions& options, std::set<std::int32_t> gone)
    : options_(options),
      claim_{options.control.rank, options.control.size,     ::getpid(),
             options.control.host, options.control.build_id, false},
      gone_(std::move(gone)),
      children_(options_.control, claim_, *this) {
  adopt(options.membership);
}

Result<Successor> AgreementLeader::lead() {
  TUTTI_RETURN_IF_ERROR(options_.listener->lend_to(children_));
  for (;;) {
    if (absent_ids().empty() && has_joiners()) {
      if (!is_proposed_) TUTTI_RETURN_IF_ERROR(propose());
      if (is_confirmed()) break;
    }
    if (!trouble_) return end(trouble_);
    const Clock::time_point now = Clock::now();
    if (now >= options_.deadline) return end(describe_missing());
    poll_once(kProbeInterval);
    if (now - begin_ >= kProbeInterval) probe_absent();
  }
  is_committed_ = true;
  children_.stop_listening();  // a member that comes again waits for the next agreement
  for (auto& [id, candidate] : candidates_) candidate.probe.reset();
  // The others try again, and wait for the next agreement.
  for (std::size_t i = joiners_to_admit(); i < joiners_.size(); ++i) joiners_[i].child->socket.close();
  children_.send_to_all(Frame{FrameType::commit, claim_.rank, 0, encode(RoundPayload{round_})});
  return successor_;
}

Status AgreementLeader::describe_missing() const {
  const int size = static_cast<int>(membership_.members.size());
  const std::vector<int> absent = list_ranks([](const Candidate& one) { return one.child == nullptr; });
  if (!absent.empty()) {
    return {StatusCode::timeout,
            fmt::format("not called in time by {}: all members that are alive have to call it",
                        name_ranks(absent, size)),
            absent.front()};
  }
  if (!has_joiners()) {
    return {StatusCode::timeout,
            fmt::format("{} members are alive and {} processes wait to join; expected {} in all",
                        candidates_.size() + 1, joiners_.size(), *options_.new_size)};
  }
  const std::vector<int> silent =
      list_ranks([this](const Candidate& one) { return one.confirmed != round_; });
  if (silent.empty()) return {StatusCode::timeout, "a process that joins has not confirmed in time"};
  return {StatusCode::timeout,
          fmt::format("called by {}, but not confirmed in time: a process may be stopped or frozen",
                      name_ranks(silent, size)),
          silent.front()};
}

// Members that wait for this one hear the reason.
Status AgreementLeader::end(const Status& why) {
  children_.send_to_all_known(
      Frame{FrameType::refused, 0, 0, encode(StatusPayload{why.code(), why.message(), why.peer()})});
  children_.finish(Clock::now() + kLastWords);
  return why;
}

Status AgreementLeader::watch() {
  if (lost_) poll_once(std::chrono::milliseconds(0));
  return lost_;
}

void AgreementLeader::poll_once(std::chrono::milliseconds at_most) {
  std::vector<pollfd> fds;
  const std::size_t child_count = children_.append_fds(fds);
  std::vector<std::pair<MemberProbe*, std::size_t>> probes;
  for (auto& [id, candidate] : candidates_) {
    if (candidate.probe) probes.emplace_back(&*candidate.probe, candidate.probe->append_fds(fds));
  }
  if (::poll(fds.data(), fds.size(), static_cast<int>(at_most.count())) < 0) return;
  const std::span<const pollfd> all(fds);
  std::size_t at = child_count;
  for (const auto& [probe, count] : probes) {
    probe->serve(all.subspan(at, count));
    at += count;
  }
  children_.serve(all.first(child_count));
  children_.drop_expired();
}

// A member that has not come yet may be dead.
void AgreementLeader::probe_absent() {
  for (const int id : absent_ids()) {
    Candidate& candidate = candidates_[id];
    const auto member = std::find_if(membership_.members.begin(), membership_.members.end(),
                                     [id = id](const Member& one) { return one.id == id; });
    if (!candidate.probe) candidate.probe.emplace(member->place, options_.control.silence);
    if (candidate.probe->verdict() == MemberProbe::Verdict::gone) mark_gone(id);
  }
}

std::vector<int> AgreementLeader::absent_ids() const {
  std::vector<int> ids;
  for (const auto& [id, candidate] : candidates_) {
    if (candidate.child == nullptr) ids.push_back(id);
  }
  return ids;
}

std::vector<int> AgreementLeader::list_ranks(const std::function<bool(const Candidate&)>& is_listed) const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < membership_.members.size(); ++rank) {
    const auto found = candidates_.find(membership_.members[rank].id);
    if (found != candidates_.end() && is_listed(found->second)) ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

void AgreementLeader::mark_gone(std::int32_t id) {
  gone_.insert(id);
  candidates_.erase(id);
  is_proposed_ = false;
}

void AgreementLeader::adopt(const Membership& membership) {
  membership_ = membership;
  is_proposed_ = false;
  std::map<std::int32_t, Candidate> kept;
  for (const Member& member : membership_.members) {
    if (member.id == claim_.rank || gone_.count(member.id) > 0) continue;
    if (auto known = candidates_.extract(member.id); !known.empty()) {
      kept.insert(std::move(known));
    } else {
      kept[member.id];
    }
  }
  for (auto& [id, candidate] : candidates_) {
    if (candidate.child != nullptr) candidate.child->socket.close();
  }
  candidates_ = std::move(kept);
  forget_members_that_join();
}

// The commit that made a process a member may not have reached it before its leader died. It asks to join once more,
// and knows of no id.
void AgreementLeader::forget_members_that_join() {
  for (const Joiner& joiner : joiners_) {
    for (const Member& member : membership_.members) {
      const auto found = candidates_.find(member.id);
      if (member.place == joiner.place && found != candidates_.end() && found->second.child == nullptr)
        mark_gone(member.id);
    }
  }
}

// -- members ------------------------------------------------------------------------------------------------

Status AgreementLeader::check(const MemberClaim& claim) {
  if (is_committed_) return {StatusCode::aborted, "come again"};
  if (gone_.count(claim.rank) == 0) return {};
  return {StatusCode::refused,
          fmt::format("the other members go on without member {}, which they count as dead or have left out",
                      claim.rank)};
}

void AgreementLeader::on_frame(ChildConnection& child, Frame frame) {
  if (frame.type == FrameType::membership) return on_membership(child, frame);
  RoundPayload confirmed;
  if (child.claim.rank == kJoining && frame.type == FrameType::confirm && decode(frame.payload, confirmed)) {
    for (Joiner& joiner : joiners_) {
      if (joiner.child == &child) joiner.confirmed = confirmed.round;
    }
    return;
  }
  const auto found = candidates_.find(child.claim.rank);
  if (frame.type != FrameType::confirm || !decode(frame.payload, confirmed) || found == candidates_.end())
    return;
  if (found->second.child == &child) found->second.confirmed = confirmed.round;
}

void AgreementLeader::on_membership(ChildConnection& child, const Frame& frame) {
  MembershipPayload payload;
  RanksPayload gone;
  if (is_committed_ || !decode(frame.payload, payload) || !decode(payload.gone, gone))
    return child.socket.close();
  if (child.claim.rank == kJoining) return on_joiner(child, payload);
  if (payload.membership.epoch > membership_.epoch) adopt(payload.membership);
  const auto found = candidates_.find(child.claim.rank);
  if (found == candidates_.end()) {
    return children_.refuse(
        child, Status(StatusCode::refused,
                      fmt::format("member {} does not belong to this group any more", child.claim.rank)));
  }
  if (found->second.child != nullptr && found->second.child != &child) found->second.child->socket.close();
  found->second = {&child, 0, payload.engine_epoch, std::nullopt};
  is_proposed_ = false;
  for (const std::int32_t id : gone.ranks) {
    const auto other = candidates_.find(id);
    if (other != candidates_.end() && other->second.child == nullptr) mark_gone(id);
  }
}

void AgreementLeader::on_joiner(ChildConnection& child, const MembershipPayload& payload) {
  if (payload.membership.members.size() != 1) return child.socket.close();
  joiners_.push_back({&child, payload.membership.members.front().place, 0});
  is_proposed_ = false;
  forget_members_that_join();
}

void AgreementLeader::on_lost(ChildConnection& child, const Status& /*why*/) {
  if (std::erase_if(joiners_, [&](const Joiner& joiner) { return joiner.child == &child; }) > 0) {
    is_proposed_ = false;
    if (is_committed_ && lost_)
      lost_ = Status(StatusCode::peer_failed, "a process was lost while it joined the group");
    return;
  }
  const auto found = candidates_.find(child.claim.rank);
  if (found == candidates_.end() || found->second.child != &child) return;
  found->second.child = nullptr;  // it is dead, or its call has ended with an error: the probe tells
  is_proposed_ = false;
  if (is_committed_ && lost_) {
    lost_ = Status(StatusCode::peer_failed,
                   fmt::format("{} was lost while the new group was made", describe_process(child.claim)));
  }
}

// -- rounds -------------------------------------------------------------------------------------------------

bool AgreementLeader::has_joiners() const {
  if (!options_.new_size) return true;
  if (*options_.new_size > 0) return candidates_.size() + 1 + joiners_.size() >= *options_.new_size;
  return Clock::now() - begin_ >= kJoinerTime && !children_.has_limit();
}

std::size_t AgreementLeader::joiners_to_admit() const {
  if (!options_.new_size) return 0;
  if (*options_.new_size == 0) return joiners_.size();
  const std::size_t members = candidates_.size() + 1;
  return std::min(joiners_.size(), *options_.new_size - std::min(members, *options_.new_size));
}

bool AgreementLeader::is_one_scope() const {
  const std::vector<Member>& members = successor_.membership.members;
  return std::all_of(members.begin(), members.end(), [&](const Member& member) {
    return member.place.scope == options_.listener->place().scope;
  });
}

Status AgreementLeader::propose() {
  successor_ = {random_job(),
                {},
                options_.engine_epoch != kNoEngine,
                {},
                {membership_.epoch + 1, membership_.next_id, {}}};
  Membership& next = successor_.membership;
  RanksPayload newcomers;
  for (const Member& member : membership_.members) {
    const auto found = candidates_.find(member.id);
    if (member.id != claim_.rank && found == candidates_.end()) continue;
    next.members.push_back(member);
    const std::uint64_t epoch = member.id == claim_.rank ? options_.engine_epoch : found->second.engine_epoch;
    if (epoch == kNoEngine) {
      newcomers.ranks.push_back(member.id);
    } else if (epoch != options_.engine_epoch) {
      successor_.keeps_transports = false;
    }
  }
  for (std::size_t i = 0; i < joiners_to_admit(); ++i) {
    newcomers.ranks.push_back(next.next_id);
    next.members.push_back({next.next_id++, joiners_[i].place});
  }
  successor_.newcomers = encode(newcomers);
  if (!is_one_scope()) {
    if (!options_.control.open_listeners)
      return end(unsupported("the members are on several nodes, which cannot reach each other"));
    if (network_.sockets.empty()) {
      Result<Listeners> opened = options_.control.open_listeners();
      if (!opened) return end(opened.status());
      network_ = *std::move(opened);
    }
    successor_.root_addresses = join_addresses(network_.addresses);
  }
  is_proposed_ = true;
  const Frame frame{FrameType::proposal, claim_.rank, 0, encode(ProposalPayload{++round_, successor_})};
  for (auto& [id, candidate] : candidates_) candidate.child->socket.send(frame);
  for (std::size_t i = 0; i < joiners_to_admit(); ++i) joiners_[i].child->socket.send(frame);
  return {};
}

bool AgreementLeader::is_confirmed() const {
  const auto admitted = static_cast<std::ptrdiff_t>(joiners_to_admit());
  return is_proposed_ &&
         std::all_of(candidates_.begin(), candidates_.end(),
                     [&](const auto& one) { return one.second.confirmed == round_; }) &&
         std::all_of(joiners_.begin(), joiners_.begin() + admitted,
                     [&](const Joiner& joiner) { return joiner.confirmed == round_; });
}

}  // namespace tutti
