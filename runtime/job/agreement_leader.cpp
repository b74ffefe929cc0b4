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

constexpr std::chrono::milliseconds kTick{5};
constexpr std::chrono::seconds kLastWords{1};

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
  const Clock::time_point begin = Clock::now();
  for (;;) {
    if (absent_ids().empty()) {
      if (!is_proposed_) TUTTI_RETURN_IF_ERROR(propose());
      if (is_confirmed()) break;
    }
    if (!trouble_) return end(trouble_);
    const Clock::time_point now = Clock::now();
    if (now >= options_.deadline) {
      const std::vector<int> absent = absent_ranks();
      const int size = static_cast<int>(membership_.members.size());
      return end(Status(StatusCode::timeout,
                        fmt::format("not called in time by {}: all members that are alive have to call it",
                                    absent.empty() ? "some rank" : name_ranks(absent, size)),
                        absent.empty() ? Status::kNoPeer : absent.front()));
    }
    poll_once(kTick);
    if (now - begin >= kTick) probe_absent();
  }
  is_committed_ = true;
  children_.stop_listening();  // a member that comes again waits for the next agreement
  for (auto& [id, candidate] : candidates_) candidate.probe.reset();
  children_.send_to_all(Frame{FrameType::commit, claim_.rank, 0, encode(RoundPayload{round_})});
  return successor_;
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

std::vector<int> AgreementLeader::absent_ranks() const {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < membership_.members.size(); ++rank) {
    const auto found = candidates_.find(membership_.members[rank].id);
    if (found != candidates_.end() && found->second.child == nullptr) ranks.push_back(static_cast<int>(rank));
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
  if (payload.membership.epoch > membership_.epoch) adopt(payload.membership);
  const auto found = candidates_.find(child.claim.rank);
  if (found == candidates_.end()) {
    return children_.refuse(
        child, Status(StatusCode::refused,
                      fmt::format("member {} does not belong to this group any more", child.claim.rank)));
  }
  if (found->second.child != nullptr && found->second.child != &child) found->second.child->socket.close();
  found->second = {&child, 0, std::nullopt};
  is_proposed_ = false;
  for (const std::int32_t id : gone.ranks) {
    const auto other = candidates_.find(id);
    if (other != candidates_.end() && other->second.child == nullptr) mark_gone(id);
  }
}

void AgreementLeader::on_lost(ChildConnection& child, const Status& /*why*/) {
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

Status AgreementLeader::propose() {
  successor_ = {random_job(), {}, {membership_.epoch + 1, membership_.next_id, {}}};
  const std::string& scope = options_.listener->place().scope;
  bool is_one_scope = true;
  for (const Member& member : membership_.members) {
    if (member.id != claim_.rank && candidates_.count(member.id) == 0) continue;
    successor_.membership.members.push_back(member);
    is_one_scope = is_one_scope && member.place.scope == scope;
  }
  if (!is_one_scope) {
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
  return {};
}

bool AgreementLeader::is_confirmed() const {
  return is_proposed_ && std::all_of(candidates_.begin(), candidates_.end(),
                                     [&](const auto& one) { return one.second.confirmed == round_; });
}

}  // namespace tutti
