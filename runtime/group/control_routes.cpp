// What the control thread passes up and down. Knows no meaning of the messages; see control_tree.hpp.
#include <fmt/format.h>

#include <algorithm>

#include "runtime/group/control_tree.hpp"

namespace tutti {
namespace {

constexpr std::chrono::seconds kGoodbyeTime{1};  // for who has left to close its connection
constexpr std::chrono::milliseconds kHoldTime{
    5};  // values wait this long for others of the node to travel with

}  // namespace

// -- from below ---------------------------------------------------------------------------------------------

Status ControlTree::check(const MemberClaim& claim) {
  if (root_) return root_->check(claim);
  const bool is_rank = claim.rank >= 0 && claim.rank < options_.size && claim.size == options_.size;
  if (is_rank && claim.rank != options_.rank && below_[static_cast<std::size_t>(claim.rank)] == nullptr)
    return {};
  // The words are those of rank 0, which sees the same contradiction.
  ControlRoot root(options_.size, *this);
  root.admit(claim_);
  for (const Guest* guest : below_) {
    if (guest != nullptr && root.check(guest->claim)) root.admit(guest->claim);
  }
  return root.check(claim);
}

void ControlTree::on_joined(Guest& guest) {
  if (guest.is_remote) note_remote(guest.address.to_text());
  on_arrived(guest, ArrivedPayload{{guest.claim}});
}

void ControlTree::on_arrived(Guest& guest, const ArrivedPayload& payload) {
  ArrivedPayload further;
  for (const MemberClaim& claim : payload.claims) {
    if (const Status status = check(claim); !status) {
      const Frame refusal{FrameType::refused, 0, claim.rank,
                          encode(StatusPayload{status.code(), status.message()})};
      guest.link.send(refusal);
      continue;
    }
    below_[static_cast<std::size_t>(claim.rank)] = &guest;
    if (root_) {
      root_->admit(claim);
    } else {
      further.claims.push_back(claim);
    }
  }
  if (!root_ && !further.claims.empty()) {
    if (uplink_->stage() == ControlUplink::Stage::searching) {
      unannounced_.insert(unannounced_.end(), further.claims.begin(), further.claims.end());
    } else {
      pass_up(Frame{FrameType::arrived, options_.rank, 0, encode(further)});
    }
  }
  if (root_ && !is_ready_ && root_->is_complete()) {
    is_ready_ = true;
    guests_.send_to_all(Frame{FrameType::ready, 0, 0, {}});
    finish_start({});
  }
}

void ControlTree::on_frame(Guest& guest, Frame frame) {
  ArrivedPayload arrived;
  GonePayload gone;
  EntriesPayload entries;
  const auto leads_to = [&](int rank) {
    return rank >= 0 && rank < options_.size && below_[static_cast<std::size_t>(rank)] == &guest;
  };
  switch (frame.type) {
    case FrameType::goodbye:
      lose_below(guest, false, {});
      guest.stage = Guest::Stage::leaving;
      guest.until = Clock::now() + kGoodbyeTime;
      return;
    case FrameType::arrived:
      if (decode(frame.payload, arrived)) on_arrived(guest, arrived);
      return;
    case FrameType::gone:
      if (!decode(frame.payload, gone) || !leads_to(gone.rank)) return;
      below_[static_cast<std::size_t>(gone.rank)] = nullptr;
      return on_gone(gone.rank, gone.is_dead, gone.text);
    case FrameType::gather:
      if (!decode(frame.payload, entries)) return;
      std::erase_if(entries.entries, [&](const auto& entry) { return !leads_to(entry.first); });
      if (root_) return root_->on_gather(entries);
      return add_to_batch(std::move(entries));
    default:
      if (leads_to(frame.source)) on_frame_from_below(std::move(frame));
  }
}

// What goes up from here: to rank 0's books if that is us.
void ControlTree::on_frame_from_below(Frame frame) {
  GatherPayload gather;
  EntriesPayload entries;
  FailurePayload failure;
  switch (frame.type) {
    case FrameType::gather:
      if (!decode(frame.payload, entries)) return;
      if (root_) return root_->on_gather(entries);
      return add_to_batch(std::move(entries));
    case FrameType::who:
      if (!root_) return pass_up(std::move(frame));
      if (decode(frame.payload, gather)) root_->on_who(frame.source, gather.number);
      return;
    case FrameType::failure:
      if (!decode(frame.payload, failure)) return;
      if (root_) return root_->on_failure_request(std::move(failure));
      // Without rank 0 nobody can stamp: the cause holds on this node, and the others find out by their
      // deadlines.
      if (is_orphan()) return send_to_all(frame);
      return pass_up(std::move(frame));
    case FrameType::message:
      if (frame.target < 0 || frame.target >= options_.size) return;
      if (root_ || frame.target == options_.rank || below_[static_cast<std::size_t>(frame.target)] != nullptr)
        return send_to(frame.target, frame);
      return pass_up(std::move(frame));
    default:
      return;  // a process of our own build sends nothing else
  }
}

void ControlTree::on_lost(Guest& guest, const Status& why) {
  lose_below(guest, true, describe_loss(guest.claim, why, guest.is_remote));
}

// The rank at the other end first: it is the cause, and the ranks behind it are what follows from it.
void ControlTree::lose_below(Guest& guest, bool is_dead, const std::string& text) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < below_.size(); ++rank) {
    if (below_[rank] != &guest) continue;
    below_[rank] = nullptr;
    if (static_cast<int>(rank) != guest.claim.rank) ranks.push_back(static_cast<int>(rank));
  }
  std::erase_if(unannounced_, [&](const MemberClaim& claim) { return claim.rank == guest.claim.rank; });
  on_gone(guest.claim.rank, is_dead, text);
  for (const int rank : ranks) {
    on_gone(rank, is_dead, fmt::format("rank {} cannot be reached: it is on the node of {}", rank, text));
  }
}

void ControlTree::on_gone(int rank, bool is_dead, const std::string& text) {
  if (root_) return root_->on_gone(rank, is_dead, text);
  if (!is_orphan()) {
    if (uplink_->stage() == ControlUplink::Stage::searching) return;
    return pass_up(Frame{FrameType::gone, options_.rank, 0, encode(GonePayload{rank, is_dead, text})});
  }
  if (is_dead) {
    send_to_all(Frame{FrameType::failure, 0, 0,
                      encode(FailurePayload{0, rank, rank, StatusCode::peer_failed, text})});
  }
}

std::size_t ControlTree::ranks_here() const {
  return 1 + static_cast<std::size_t>(std::count_if(below_.begin(), below_.end(),
                                                    [](const Guest* guest) { return guest != nullptr; }));
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
  if (batches_.empty()) return;
  const Clock::time_point now = Clock::now();
  const std::size_t here = ranks_here();
  std::erase_if(batches_, [&](const auto& item) {
    const Batch& batch = item.second;
    if (batch.payload.entries.size() < here && now < batch.until) return false;
    pass_up(Frame{FrameType::gather, options_.rank, 0, encode(batch.payload)});
    return true;
  });
}

void ControlTree::pass_up(Frame frame) {
  if (!is_orphan()) uplink_->link().send(frame);
}

// -- from above ---------------------------------------------------------------------------------------------

void ControlTree::on_frame_from_above(const Frame& frame) {
  StatusPayload status;
  GatherPayload gather;
  switch (frame.type) {
    case FrameType::ready:
      is_ready_ = true;
      guests_.send_to_all(frame);
      return finish_start({});
    case FrameType::refused:
      if (!decode(frame.payload, status) || status.code == StatusCode::ok)
        status = {StatusCode::refused, "no reason given"};
      // Before rank 0 knows us, a refusal has no target.
      if (frame.target == options_.rank || frame.target == 0)
        return end_start(Status(status.code, status.message));
      if (frame.target > 0 && frame.target < options_.size) {
        if (Guest* guest = below_[static_cast<std::size_t>(frame.target)]; guest != nullptr) {
          below_[static_cast<std::size_t>(frame.target)] = nullptr;
          if (guest->claim.rank == frame.target)
            return guests_.refuse(*guest, Status(status.code, status.message));
          guest->link.send(frame);
        }
      }
      return;
    case FrameType::missing:
      if (!is_ready_ && frame.target == options_.rank && decode(frame.payload, gather) &&
          gather.values.size() == 1) {
        missing_ = gather.values[0];
        asked_until_ = Clock::now();
        return;
      }
      return send_to(frame.target, frame);
    case FrameType::message:
      return send_to(frame.target, frame);
    case FrameType::goodbye:
      // It has left in peace. The others go on without a control channel: what it would tell us now comes
      // from deadlines only.
      lose(Status(StatusCode::peer_failed, fmt::format("rank {} has left the world", uplink_->parent().rank),
                  uplink_->parent().rank));
      is_over_ = true;
      return;
    default:
      return send_to_all(frame);
  }
}

void ControlTree::on_parent_lost(const Status& why) {
  const MemberClaim& parent = uplink_->parent();
  const std::string text =
      why.code() == StatusCode::refused ? why.message() : describe_loss(parent, why, uplink_->is_remote());
  if (!is_ready_) return end_start(Status(why.code(), text, parent.rank));
  send_to_all(Frame{FrameType::failure, 0, 0,
                    encode(FailurePayload{0, parent.rank, parent.rank, StatusCode::peer_failed, text})});
  // Who leads a node goes on for its members.
  is_over_ = ranks_here() == 1;
}

void ControlTree::send_to(int rank, const Frame& frame) {
  if (rank == options_.rank) return deliver(frame);
  if (rank < 0 || rank >= options_.size) return;
  if (Guest* guest = below_[static_cast<std::size_t>(rank)]; guest != nullptr) guest->link.send(frame);
}

void ControlTree::send_to_all(const Frame& frame) {
  guests_.send_to_all(frame);  // the others first: our own listener may take its time
  deliver(frame);
}

}  // namespace tutti
