// Finds the leader and confirms its proposals. See agreement_follower.hpp.
#include "runtime/job/agreement_follower.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "runtime/job/agreement_leader.hpp"

namespace tutti {
namespace {

constexpr std::chrono::milliseconds kPollTime{5};
constexpr std::chrono::seconds kReasonTime{2};  // for the leader's reason after the deadline

}  // namespace

void add_place(ParentConnection& connection, const Member& member) {
  if (member.place.scope == network_scope()) return connection.add_name(member.place.name, member.id);
  if (const auto addresses = split_addresses(member.place.addresses))
    connection.add_addresses(*addresses, member.id);
}

AgreementFollower::AgreementFollower(const AgreementOptions& options, std::vector<Member> leaders,
                                     std::size_t leader_rank, std::set<std::int32_t> gone)
    : options_(options),
      claim_{options.control.rank, options.control.size,     ::getpid(),
             options.control.host, options.control.build_id, false},
      leaders_(std::move(leaders)),
      leader_rank_(leader_rank),
      gone_(std::move(gone)) {
  connect();
}

void AgreementFollower::connect() {
  parent_.emplace(options_.control, claim_);
  for (const Member& leader : leaders_) add_place(*parent_, leader);
  proposal_.reset();
}

Result<std::optional<Successor>> AgreementFollower::follow() {
  while (Clock::now() < limit()) {
    std::vector<Frame> frames;
    const Status status = poll_once(kPollTime, frames);
    for (const Frame& frame : frames) {
      const Result<bool> is_committed = on_frame(frame);
      if (!is_committed) return is_committed.status();
      if (*is_committed) return std::optional(proposal_->successor);
    }
    if (!status && parent_->stage() != ParentConnection::Stage::over) return status;  // nobody will let it in
    // The leader is dead, its call has ended, or it has closed a connection that came too early.
    if (!status) connect();
    if (is_leader_gone(!status)) return std::optional<Successor>();
  }
  return late();
}

// The leader knows who is missing, and says so at its deadline.
Clock::time_point AgreementFollower::limit() const {
  const bool is_joined = parent_->stage() == ParentConnection::Stage::joining;
  return options_.deadline + (is_joined ? kReasonTime : std::chrono::seconds(0));
}

// Asks the kernel when the leader does not answer.
bool AgreementFollower::is_leader_gone(bool is_lost) {
  const bool is_joined = parent_->stage() == ParentConnection::Stage::joining;
  if (is_joined || is_joining()) {
    probe_.reset();
    return false;
  }
  if (!probe_ && (is_lost || parent_->has_failed_everywhere()))
    probe_.emplace(leaders_.front().place, options_.control.silence);
  return probe_ && probe_->verdict() == MemberProbe::Verdict::gone;
}

Status AgreementFollower::late() const {
  if (is_joining()) {
    return {
        StatusCode::timeout,
        fmt::format("the group has not admitted this process in time (its members call grow or reconfigure "
                    "for that): {}",
                    parent_->describe_search())};
  }
  if (parent_->stage() == ParentConnection::Stage::joining) {
    return {
        StatusCode::timeout,
        fmt::format("no agreement in time: rank {}, the lowest that is alive, has called it and waits for "
                    "another rank, or is stopped or frozen",
                    leader_rank_),
        static_cast<int>(leader_rank_)};
  }
  return {StatusCode::timeout,
          fmt::format("not called in time by rank {}, the lowest that is alive: all members that are alive "
                      "have to call it",
                      leader_rank_),
          static_cast<int>(leader_rank_)};
}

Status AgreementFollower::poll_once(std::chrono::milliseconds at_most, std::vector<Frame>& frames) {
  std::vector<pollfd> fds;
  const std::size_t parent_count = parent_->append_fds(fds);
  if (probe_) probe_->append_fds(fds);
  if (::poll(fds.data(), fds.size(), static_cast<int>(at_most.count())) < 0) return {};
  const std::span<const pollfd> all(fds);
  if (probe_) probe_->serve(all.subspan(parent_count));
  return parent_->serve(all.first(parent_count), frames);
}

void AgreementFollower::introduce() {
  RanksPayload gone;
  gone.ranks.assign(gone_.begin(), gone_.end());
  parent_->socket().send(
      Frame{FrameType::membership, claim_.rank, 0,
            encode(MembershipPayload{encode(gone), options_.engine_epoch,
                                     is_joining() ? Membership{0, 0, {{kJoining, options_.listener->place()}}}
                                                  : options_.membership})});
}

Result<bool> AgreementFollower::on_frame(const Frame& frame) {
  StatusPayload refusal;
  ProposalPayload proposal;
  RoundPayload committed;
  if (frame.type == FrameType::refused && decode(frame.payload, refusal) && refusal.code != StatusCode::ok &&
      refusal.code != StatusCode::aborted) {
    return Status(refusal.code, refusal.message, refusal.peer);
  }
  if (frame.type == FrameType::membership) introduce();
  if (frame.type == FrameType::proposal && decode(frame.payload, proposal)) {
    proposal_ = std::move(proposal);
    parent_->socket().send(Frame{FrameType::confirm, claim_.rank, 0, encode(RoundPayload{proposal_->round})});
  }
  return frame.type == FrameType::commit && decode(frame.payload, committed) && proposal_ &&
         committed.round == proposal_->round;
}

Status AgreementFollower::watch() {
  std::vector<Frame> ignored;
  const Status status = poll_once(std::chrono::milliseconds(0), ignored);
  if (status) return {};
  return {StatusCode::peer_failed,
          fmt::format("{} was lost while it made the new group", describe_process(parent_->claim()))};
}

// -- both sides ---------------------------------------------------------------------------------------------

Result<Agreed> agree_on_successor(const AgreementOptions& options) {
  const std::lock_guard lock(options.listener->mutex());
  std::set<std::int32_t> gone = options.gone;
  for (std::size_t rank = 0; rank < options.membership.members.size(); ++rank) {
    const Member& member = options.membership.members[rank];
    if (member.id == options.control.rank) {
      auto side = std::make_shared<AgreementLeader>(options, gone);
      Result<Successor> successor = side->lead();
      if (!successor) return successor.status();
      return Agreed{*std::move(successor), side};
    }
    if (gone.count(member.id) > 0) continue;
    auto side = std::make_shared<AgreementFollower>(options, std::vector<Member>{member}, rank, gone);
    Result<std::optional<Successor>> successor = side->follow();
    if (!successor) return successor.status();
    if (*successor) return Agreed{**std::move(successor), side};
    gone.insert(member.id);
  }
  return Status(StatusCode::refused, "this process does not belong to the group any more");
}

Result<Agreed> ask_to_join(const AgreementOptions& options) {
  auto side =
      std::make_shared<AgreementFollower>(options, options.membership.members, 0, std::set<std::int32_t>());
  Result<std::optional<Successor>> successor = side->follow();
  if (!successor) return successor.status();
  return Agreed{**std::move(successor), side};
}

}  // namespace tutti
