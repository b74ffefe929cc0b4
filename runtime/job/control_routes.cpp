// Forwarding of frames up and down the tree. Knows no meaning of the messages; see control_tree.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/rank_lists.hpp"
#include "runtime/job/control_tree.hpp"

namespace tutti {
namespace {

constexpr std::chrono::seconds kChildGoodbyeTime{1};  // for a rank that has left to close its connection
constexpr std::chrono::milliseconds kLeaveTogetherTime{500};  // when one rank leaves, mostly all do
constexpr std::size_t kMaxRequested = 4096;
constexpr std::chrono::milliseconds kReportTime{
    200};  // of a dead leader's node; transports wait longer for a cause
constexpr std::chrono::milliseconds kHoldTime{
    5};  // values wait this long for others of the node, to share a frame

}  // namespace

// -- from below ---------------------------------------------------------------------------------------------

// A rank that comes again was behind its leader. One with a connection of its own is another process.
MemberClaim ControlTree::without_double(MemberClaim claim) const {
  const bool is_rank = claim.rank >= 0 && claim.rank < options_.size;
  const ChildConnection* const known = is_rank ? below_[static_cast<std::size_t>(claim.rank)] : nullptr;
  claim.is_again = claim.is_again && (known == nullptr || known->claim.rank != claim.rank);
  return claim;
}

Status ControlTree::check(const MemberClaim& claim) {
  if (root_) return root_->check(without_double(claim));
  const bool is_rank = claim.rank >= 0 && claim.rank < options_.size && claim.size == options_.size;
  if (claim.is_moving && is_cut_off())
    return Status(StatusCode::refused, fmt::format("rank {} has lost its way to rank 0", options_.rank));
  if (claim.is_moving && is_rank && claim.rank != options_.rank) return {};
  if (is_rank && claim.rank != options_.rank && below_[static_cast<std::size_t>(claim.rank)] == nullptr)
    return {};
  // Rank 0 sees the same contradiction; use its text.
  ControlRoot root(options_.size, *this);
  root.admit(claim_);
  for (const ChildConnection* child : below_) {
    if (child != nullptr && root.check(child->claim)) root.admit(child->claim);
  }
  return root.check(claim);
}

void ControlTree::on_joined(ChildConnection& child) {
  if (child.is_remote) note_remote(child.address.to_text());
  // A rank that has moved takes the path as its welcome.
  if (!root_ || child.claim.is_moving) child.socket.send(make_path_frame());
  child.claim.is_moving ? welcome_mover(child) : on_arrived(child, ArrivedPayload{{child.claim}});
  if (!is_ready_ || !child.claim.is_again) return;
  child.socket.send(Frame{FrameType::ready, 0, 0, {}});  // its leader has died with this frame
  welcome_mover(child);
}

void ControlTree::on_arrived(ChildConnection& child, const ArrivedPayload& payload) {
  ArrivedPayload further;
  for (const MemberClaim& claim : payload.claims) {
    if (const Status status = check(claim); !status) {
      const Frame refusal{FrameType::refused, 0, claim.rank,
                          encode(StatusPayload{status.code(), status.message()})};
      child.socket.send(refusal);
      continue;
    }
    below_[static_cast<std::size_t>(claim.rank)] = &child;
    if (root_) {
      root_->admit(claim);
    } else {
      further.claims.push_back(claim);
    }
  }
  if (!root_ && !further.claims.empty()) {
    if (is_searching()) {
      unannounced_.insert(unannounced_.end(), further.claims.begin(), further.claims.end());
    } else {
      pass_up(Frame{FrameType::arrived, options_.rank, 0, encode(further)});
    }
  }
  if (root_ && !plan_ && root_->is_complete()) start_tree();
}

// A rank has moved to this connection, with its descendants.
void ControlTree::on_attached(ChildConnection& child, const Frame& frame) {
  RanksPayload payload;
  if (!decode(frame.payload, payload)) return;
  // Its first frame on the new connection names itself and all descendants. Frames of its old connection are
  // older.
  const std::int32_t sender = child.claim.rank;
  const bool is_first = std::count(payload.ranks.begin(), payload.ranks.end(), sender) > 0;
  if (!is_first && below_[static_cast<std::size_t>(sender)] != &child) return;
  for (const std::int32_t rank : payload.ranks) {
    if (rank < 1 || rank >= options_.size || rank == options_.rank) continue;
    below_[static_cast<std::size_t>(rank)] = &child;
    if (!root_) continue;
    root_->on_attached(rank);
    if (plan_) plan_->on_attached(rank, child.claim.rank == rank);
  }
  root_ ? finish_tree() : pass_up(frame);
}

void ControlTree::on_moving(ChildConnection& child) {
  if (!root_ || is_ready_ || !plan_) return;
  std::replace(below_.begin(), below_.end(), &child, static_cast<ChildConnection*>(nullptr));
  child.socket.close();
  plan_->on_moving(child.claim.rank);
  finish_tree();
}

// More than 15 decisions because it tells all frame types apart.
void ControlTree::on_frame(ChildConnection& child, Frame frame) {
  ArrivedPayload arrived;
  GonePayload gone;
  EntriesPayload entries;
  const auto leads_to = [&](int rank) {
    return rank >= 0 && rank < options_.size && below_[static_cast<std::size_t>(rank)] == &child;
  };
  switch (frame.type) {
    case FrameType::goodbye:
      lose_below(child, std::nullopt);
      child.stage = ChildConnection::Stage::leaving;
      child.until = Clock::now() + kChildGoodbyeTime;
      return;
    case FrameType::arrived:
      if (decode(frame.payload, arrived)) on_arrived(child, arrived);
      return;
    case FrameType::gone:
      if (!decode(frame.payload, gone)) return;
      if (!leads_to(gone.rank)) return root_ ? root_->on_reported(gone) : pass_up(std::move(frame));
      below_[static_cast<std::size_t>(gone.rank)] = nullptr;
      return on_gone(gone);
    case FrameType::attached:
      return on_attached(child, frame);
    case FrameType::moving:
      return on_moving(child);
    case FrameType::listening:
      return on_listening(child, frame);
    case FrameType::gather:
      if (!decode(frame.payload, entries)) return;
      std::erase_if(entries.entries, [&](const auto& entry) { return !leads_to(entry.first); });
      if (root_) return root_->on_gather(entries);
      return add_to_batch(std::move(entries));
    default:
      if (leads_to(frame.source)) on_frame_from_below(std::move(frame));
  }
}

// Handles a frame from a child or from this rank: forwards it, or updates rank 0's state here.
void ControlTree::on_frame_from_below(Frame frame) {
  GatherPayload gather;
  EntriesPayload entries;
  FailurePayload failure;
  GonePayload gone;
  switch (frame.type) {
    case FrameType::gather:
      if (!decode(frame.payload, entries)) return;
      if (root_) return root_->on_gather(entries);
      return add_to_batch(std::move(entries));
    case FrameType::query_missing:
      if (decode(frame.payload, gather)) on_query_missing(frame, gather.number);
      return;
    case FrameType::failure:
      if (!decode(frame.payload, failure)) return;
      if (root_) return root_->on_failure_request(std::move(failure));
      return request_failure(std::move(frame), failure.group);
    case FrameType::gone:  // of this rank
      if (!decode(frame.payload, gone)) return;
      return root_ ? root_->on_gone(gone) : pass_up(std::move(frame));
    case FrameType::trace:
      return on_trace(frame, false);
    case FrameType::message:
    case FrameType::traced:
      return route(frame);
    default:
      return;  // a process of our own build sends nothing else
  }
}

void ControlTree::on_lost(ChildConnection& child, const Status& why) {
  RankVerdict verdict = judge_loss(child.claim, why, child.is_remote, child.process);
  complete_verdict(verdict);
  lose_below(child, verdict);
}

void ControlTree::on_query_missing(const Frame& frame, std::uint64_t number) {
  if (!root_) return pass_up(frame);
  if (number != 0 || !root_->is_complete()) return root_->on_query_missing(frame.source, number);
  if (is_ready_) return;  // the answer is on its way
  const std::vector<int> late = late_ranks();
  if (late.empty()) return;
  send_to(frame.source, Frame{FrameType::missing, late.front(), frame.source,
                              encode(GatherPayload{0, {name_ranks(late, options_.size)}})});
}

void ControlTree::request_failure(Frame frame, std::uint64_t group) {
  if (!is_news(frame)) return;
  // Without rank 0, or while it does not answer (settle), no rank can decide: the cause holds for us and our
  // descendants. Others fail by their deadlines.
  const bool is_settled = frame.target == options_.rank;
  if (is_cut_off() || is_settled) return send_to_all(frame);
  pass_up(frame);
  if (requested_.size() < kMaxRequested)
    requested_.emplace(group, std::move(frame));  // the parent may die before it forwards the frame
}

// `death`: of the rank itself; none: it has left in an orderly way.
GonePayload ControlTree::make_gone(int rank, const std::optional<RankVerdict>& death) {
  if (!death) return {rank, false, false, {}, {}};
  return {rank, true, false, to_text(*death), {*death}};
}

// `death`: of the rank on the route to it.
GonePayload ControlTree::make_orphan(int rank, const std::optional<RankVerdict>& death) {
  if (!death) return {rank, false, true, {}, {}};
  RankVerdict consequence;
  consequence.kind = VerdictKind::unreachable;
  consequence.world_rank = rank;
  consequence.cause_rank = death->world_rank;
  complete_verdict(consequence);
  std::vector<RankVerdict> verdicts{*death, consequence};
  std::string text = to_text(verdicts);
  return {rank, true, true, std::move(text), std::move(verdicts)};
}

// The child first: it is the cause. Its descendants may still find another parent. Those on its node know how it has
// ended: rank 0 waits a moment for their word.
void ControlTree::lose_below(ChildConnection& child, const std::optional<RankVerdict>& death) {
  std::vector<int> ranks;
  const bool is_routed = below_[static_cast<std::size_t>(child.claim.rank)] == &child;
  for (std::size_t rank = 0; rank < below_.size(); ++rank) {
    if (below_[rank] != &child) continue;
    below_[rank] = nullptr;
    if (static_cast<int>(rank) != child.claim.rank) ranks.push_back(static_cast<int>(rank));
  }
  std::erase_if(unannounced_, [&](const MemberClaim& claim) { return claim.rank == child.claim.rank; });
  // Unless it has moved to another connection, or was never admitted.
  if (is_routed && root_ && is_ready_ && death && child.is_remote && !ranks.empty()) {
    root_->on_orphaned(make_gone(child.claim.rank, death), Clock::now() + kReportTime);
  } else if (is_routed) {
    on_gone(make_gone(child.claim.rank, death));
  }
  for (const int rank : ranks) on_gone(make_orphan(rank, death));
}

void ControlTree::on_gone(const GonePayload& gone) {
  if (is_searching()) {
    if (is_ready_) held_gone_.push_back(gone);
  } else if (!root_ && !is_cut_off()) {
    pass_up(Frame{FrameType::gone, options_.rank, 0, encode(gone)});
  } else if (!root_) {
    if (gone.is_dead && !gone.may_return) {
      send_to_all(Frame{FrameType::failure, 0, 0, encode(make_death(gone))});
    }
  } else if (plan_ && !is_ready_) {  // all had arrived, so nobody else will take its place
    end_start(Status(StatusCode::peer_failed,
                     gone.is_dead ? gone.text : fmt::format("rank {} has given up waiting", gone.rank),
                     gone.rank));
  } else if (gone.may_return && is_ready_) {
    root_->on_orphaned(gone, Clock::now() + 2 * options_.rejoin_time);
  } else {
    root_->on_gone(gone);
  }
}

std::vector<std::int32_t> ControlTree::ranks_here() const {
  std::vector<std::int32_t> ranks = {options_.rank};
  for (std::size_t rank = 0; rank < below_.size(); ++rank) {
    if (below_[rank] != nullptr) ranks.push_back(static_cast<std::int32_t>(rank));
  }
  return ranks;
}

void ControlTree::add_to_batch(EntriesPayload payload) {
  const auto [at, is_new] = batches_.try_emplace(payload.number);
  Batch& batch = at->second;
  if (is_new) {
    batch.payload.number = payload.number;
    batch.until = Clock::now() + kHoldTime;
  }
  for (auto& entry : payload.entries) batch.payload.entries.push_back(std::move(entry));
}

void ControlTree::pass_batches_up() {
  if (batches_.empty() || is_searching()) return;
  const Clock::time_point now = Clock::now();
  const std::size_t here = ranks_here().size();
  std::erase_if(batches_, [&](const auto& item) {
    const Batch& batch = item.second;
    if (batch.payload.entries.size() < here && now < batch.until) return false;
    pass_up(Frame{FrameType::gather, options_.rank, 0, encode(batch.payload)});
    return true;
  });
}

void ControlTree::pass_up(Frame frame) {
  if (!is_cut_off() && !is_searching()) parent_->socket().send(frame);
}

void ControlTree::route(const Frame& frame) {
  if (frame.target < 0 || frame.target >= options_.size) return;
  if (root_ || frame.target == options_.rank || below_[static_cast<std::size_t>(frame.target)] != nullptr)
    return send_to(frame.target, frame);
  pass_up(frame);
}

// Answers with the next hop of the query from here.
void ControlTree::on_trace(const Frame& frame, bool is_from_above) {
  TracePayload trace;
  if (!decode(frame.payload, trace) || frame.target < 0 || frame.target >= options_.size) return;
  trace.hop = options_.rank;
  if (frame.target == options_.rank) {
    trace.next_hop = options_.rank;
  } else if (const ChildConnection* child = below_[static_cast<std::size_t>(frame.target)];
             child != nullptr) {
    trace.next_hop = child->claim.rank;
  } else if (!root_ && !is_from_above && !is_cut_off() && !is_searching()) {
    trace.next_hop = parent_->claim().rank;
  }
  route(Frame{FrameType::traced, options_.rank, frame.source, encode(trace)});
  if (trace.next_hop >= 0 && trace.next_hop != options_.rank) route(frame);
}

ProcessState ControlTree::inspect(int rank) {
  if (rank < 0 || rank >= options_.size) return {};
  if (const ChildConnection* child = below_[static_cast<std::size_t>(rank)];
      child != nullptr && child->claim.rank == rank) {
    return child->is_remote ? inspect_remote(child->socket.fd())
                            : inspect_peer(child->socket.fd(), child->claim.pid);
  }
  if (root_ || is_cut_off() || is_searching() || parent_->claim().rank != rank) return {};
  const int fd = parent_->socket().fd();
  return parent_->is_remote() ? inspect_remote(fd) : inspect_peer(fd, parent_->claim().pid);
}

// -- from above ---------------------------------------------------------------------------------------------

void ControlTree::on_refused(const Frame& frame) {
  StatusPayload status;
  if (!decode(frame.payload, status) || status.code == StatusCode::ok)
    status = {StatusCode::refused, "no reason given", Status::kNoPeer};
  // The new parent refuses us, mostly because the others have taken us for dead.
  if (is_ready_ && frame.target == 0) {
    if (lost_) {
      std::vector<RankVerdict>& verdicts = lost_->first.verdicts;
      verdicts.front().reason += fmt::format("; asked again, it says: {}", status.message);
      lost_->first.message = to_text(verdicts);
    }
    return try_next_step({});
  }
  // Before rank 0 knows us, a refusal has no target.
  if (frame.target == options_.rank || frame.target == 0)
    return end_start(Status(status.code, status.message, status.peer));
  if (frame.target < 0 || frame.target >= options_.size) return;
  ChildConnection* const child =
      std::exchange(below_[static_cast<std::size_t>(frame.target)], static_cast<ChildConnection*>(nullptr));
  if (child == nullptr) return;
  if (child->claim.rank == frame.target) return children_.refuse(*child, Status(status.code, status.message));
  child->socket.send(frame);
}

void ControlTree::on_missing(const Frame& frame) {
  GatherPayload gather;
  const bool is_about_start = !is_ready_ && frame.target == options_.rank;
  if (!is_about_start || !decode(frame.payload, gather) || gather.values.size() != 1)
    return send_to(frame.target, frame);
  missing_ = gather.values[0];
  first_missing_ = frame.source;
  asked_until_ = Clock::now();
}

// More than 15 decisions because it tells all frame types apart.
void ControlTree::on_frame_from_above(const Frame& frame) {
  PathPayload path;
  FailurePayload failure;
  // These two bring none of the frames that we may have missed.
  if (frame.type != FrameType::goodbye && frame.type != FrameType::refused) lost_.reset();
  switch (frame.type) {
    case FrameType::open_listener:
      return open_listeners();
    case FrameType::attach:
      if (decode(frame.payload, path) && path.steps.size() == 1) move_to(path.steps[0]);
      return;
    case FrameType::path:
      if (decode(frame.payload, path) && !path.steps.empty()) set_path(std::move(path.steps));
      return;
    case FrameType::failure:
      if (decode(frame.payload, failure)) requested_.erase(failure.group);
      return send_to_all(frame);
    case FrameType::ready:
      is_ready_ = true;
      children_.close_unused_listeners();
      children_.send_to_all(frame);
      return finish_start({});
    case FrameType::refused:
      return on_refused(frame);
    case FrameType::missing:
      return on_missing(frame);
    case FrameType::message:
    case FrameType::traced:
      return send_to(frame.target, frame);
    case FrameType::trace:
      return on_trace(frame, true);
    case FrameType::goodbye:
      return on_parent_left(frame.source);
    default:
      return send_to_all(frame);
  }
}

// In an orderly way. After rank 0 has left, the other ranks go on without a control channel; only deadlines
// report failures then.
void ControlTree::on_parent_left(int rank) {
  const Status left(StatusCode::peer_failed, fmt::format("rank {} has left the world", rank), rank);
  if (!is_ready_) return end_start(left);
  if (rank != 0) {
    lose(left);
    return search_parent(Clock::now() + kLeaveTogetherTime, false);
  }
  if (lost_) send_to_all(Frame{FrameType::failure, 0, 0, encode(lost_->first)});  // no later frame brings it
  lose(left);
  record_departure(0);
  leaving_rank_ = 0;
  is_over_ = true;
}

// Our leader has died during the start, perhaps before it reached rank 0, which would wait for all of this node until its
// deadline. Another rank leads now, and reports the death. No wait for a first rank of the node: the node had a leader.
void ControlTree::replace_leader(GonePayload gone, Status lost) {
  if (lost_leader_) lost_leader_ = std::move(lost);  // rank 0 names the first
  held_gone_.push_back(std::move(gone));
  move_until_ = Clock::now() + options_.rejoin_time;
  parent_.emplace(options_, claim_.as_again());
  search_leader({});
}

void ControlTree::on_parent_lost(const Status& why) {
  const MemberClaim& parent = parent_->claim();
  const ProcessState process =
      parent_->is_remote() ? ProcessState() : inspect_peer(parent_->socket().fd(), parent.pid);
  RankVerdict verdict = judge_loss(parent, why, parent_->is_remote(), process);
  if (why.code() == StatusCode::refused) verdict.reason = why.message();
  complete_verdict(verdict);
  GonePayload gone = make_gone(parent.rank, verdict);
  const bool is_reset = why.code() == StatusCode::aborted;
  if (!is_ready_) {
    Status lost(is_reset ? StatusCode::peer_failed : why.code(), gone.text, parent.rank);
    const bool was_leader = parent.rank != 0 && !parent_->is_remote() && options_.find_root != nullptr;
    // A group that goes on agrees anew instead.
    return was_leader && options_.watch_start == nullptr ? replace_leader(std::move(gone), std::move(lost))
                                                         : end_start(lost);
  }
  if (!lost_) lost_ = Loss{make_death(gone), parent.rank};
  lost_->last = parent.rank;
  // Our report may be the only one if our parent's parent is lost, too.
  if (is_reset || why.code() == StatusCode::peer_failed) held_gone_.push_back(std::move(gone));
  // Where the connection was reset, its host can be reached again, and the process may be alive.
  search_parent({}, is_reset && parent_->is_remote());
}

// The key of a frame that ranks which attach later must still get.
std::optional<ControlTree::Key> ControlTree::key_of(const Frame& frame) {
  FailurePayload failure;
  GatherPayload gather;
  if (frame.type == FrameType::failure && decode(frame.payload, failure))
    return Key{frame.type, failure.group, failure.dead_rank};
  if (frame.type == FrameType::gather_failed && decode(frame.payload, gather))
    return Key{frame.type, gather.number, -1};
  return {};
}

void ControlTree::send_to(int rank, const Frame& frame) {
  if (rank == options_.rank) return deliver(frame);
  if (rank < 0 || rank >= options_.size) return;
  if (ChildConnection* child = below_[static_cast<std::size_t>(rank)]; child != nullptr)
    child->socket.send(frame);
}

void ControlTree::send_to_all(const Frame& frame) {
  if (!is_news(frame)) return;
  remember(frame);
  children_.send_to_all(frame);  // children first: our own observer may be slow
  deliver(frame);
}

}  // namespace tutti
