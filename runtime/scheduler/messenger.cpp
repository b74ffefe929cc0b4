// Announcing, matching and clearing messages; see messenger.hpp.
#include "runtime/scheduler/messenger.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "runtime/scheduler/group_context.hpp"

namespace tutti {
namespace {

constexpr RequestId kProbeRequest = ~RequestId{0};  // of no operation

}  // namespace

Messenger::Messenger(GroupContext& group) : group_(group) {}

void Messenger::leave() { group_.engine().remove_messenger(*this); }

// -- submission ---------------------------------------------------------------------------------------------

Result<WorkRef> Messenger::submit(const Call& call, std::uint32_t kind) {
  TUTTI_RETURN_IF_ERROR(open(call));
  Operation& operation = *group_.engine().pool().take();
  hold(operation, call, kind);
  if (call.is_send) {
    Peer& peer = peers_[call.root];
    const auto added = sends_.emplace(std::pair(call.root, peer.next_number), &operation).first;
    send_of_.emplace(&operation, added);
    tell(call.root, {Note::Kind::announcement, call.tag, peer.next_number++});
    check_send(operation, call.root);
  } else {
    const MessageMatcher::Receive receive{call.root, call.tag, &operation};
    if (const auto message = matcher_.post(receive)) {
      take(receive, *message);
    } else {
      check_receive(receive);
    }
  }
  progress(false);
  return WorkRef::adopt(&operation);
}

// Endpoints to all who may send it, or to the receiver: what they say arrives once they are open.
Status Messenger::open(const Call& call) {
  if (peers_.empty()) peers_.resize(group_.size());
  const bool has_tag = call.tag != 0;
  Status status;
  for (std::uint32_t peer = 0; peer < group_.size(); ++peer) {
    if (peer == group_.rank() || (call.root != kFromAnyRank && call.root != peer)) continue;
    const Endpoint* const endpoint =
        group_.endpoint(group_.message_slot(peer, call.is_send, has_tag), peer, &status);
    if (endpoint != nullptr) {
      group_.engine().add_correspondent(endpoint, *this, peer, has_tag);
    } else if (call.root == peer) {
      return status;
    } else {
      peers_[peer].is_gone = {true, true};  // it has left before anything was sent; others may still send
    }
  }
  return {};
}

Endpoint& Messenger::endpoint(std::uint32_t peer, bool has_tag) const {
  return group_.opened_endpoint(GroupContext::message_slot(peer, false, has_tag), peer);
}

void Messenger::hold(Operation& operation, const Call& call, std::uint32_t kind) {
  const Prepared prepared;
  SlotNeeds needs;
  // Without a plan there are no counts that could be refused.
  static_cast<void>(operation.bind(group_, prepared, call, {0, kind}, 0, &needs));
  operation.queued().is_unmatched = true;
  operation.set_references(2, true);  // one is the group's, until it is complete
  group_.engine().add_waiting(operation);
  group_.engine().add_messenger(*this);
}

void Messenger::forget(const Operation& operation) {
  const Call& call = operation.call();
  if (!call.is_send) {
    matcher_.withdraw({call.root, call.tag, const_cast<Operation*>(&operation)});
    return;
  }
  const auto found = send_of_.find(&operation);
  if (found == send_of_.end()) return;
  sends_.erase(found->second);
  send_of_.erase(found);
}

// -- matched ------------------------------------------------------------------------------------------------

void Messenger::take(const MessageMatcher::Receive& receive, const MessageMatcher::Message& message) {
  if (message.tag != 0) tell(message.source, {Note::Kind::clearance, message.tag, message.number});
  begin(*receive.operation, message.source);
}

// From now on it is a message of that pair like any other, behind those that were matched before.
void Messenger::begin(Operation& operation, std::uint32_t peer) {
  group_.engine().remove_waiting(operation);
  Call call = operation.call();
  call.root = peer;
  group_.start_message(operation, call, static_cast<std::uint32_t>(operation.word()), true);
}

void Messenger::on_note(std::uint32_t peer, ConstByteRange bytes) {
  Note note;
  if (group_.has_failed()) return;
  if (bytes.size() != sizeof(note)) {
    return group_.fail(internal_error(fmt::format("rank {} sent a note of {} bytes", peer, bytes.size()),
                                      static_cast<int>(peer)));
  }
  std::memcpy(&note, bytes.data(), sizeof(note));
  if (note.kind == Note::Kind::announcement) {
    const MessageMatcher::Message message{peer, note.tag, note.number};
    if (const auto receive = matcher_.announce(message)) take(*receive, message);
    return;
  }
  const auto send = sends_.find({peer, note.number});
  if (send == sends_.end()) return;
  Operation& operation = *send->second;
  send_of_.erase(&operation);
  sends_.erase(send);
  begin(operation, peer);
}

// -- what other ranks are told ------------------------------------------------------------------------------

void Messenger::tell(std::uint32_t peer, const Note& note) {
  peers_[peer].unsent.push_back(note);
  ++unsent_count_;
}

// True if some must be sent again.
bool Messenger::send_notes() {
  for (std::uint32_t peer = 0; peer < peers_.size() && unsent_count_ > 0; ++peer) {
    std::deque<Note>& unsent = peers_[peer].unsent;
    if (unsent.empty()) continue;
    Endpoint& to = endpoint(peer, true);
    while (!unsent.empty() && to.control(std::as_bytes(std::span(&unsent.front(), 1))) == Post::done) {
      unsent.pop_front();
      --unsent_count_;
    }
  }
  return unsent_count_ > 0;
}

// -- probing ------------------------------------------------------------------------------------------------

bool Messenger::progress(bool before_sleep) {
  if (group_.has_failed()) {
    for (Peer& peer : peers_) peer.unsent.clear();
    unsent_count_ = 0;
    return false;
  }
  bool has_moved = unsent_count_ > 0 && send_notes();
  if (matcher_.waits_for_any(0)) has_moved = probe_for_plain() || has_moved;
  if (before_sleep) probe_for_ends();
  return has_moved;
}

Post Messenger::probe(std::uint32_t peer, bool has_tag) {
  // Messages that are received already, or will be by what was posted before, are not probed for.
  const std::uint32_t slot = group_.message_slot(peer, false, has_tag);
  if (peers_[peer].is_gone[has_tag] || group_.is_busy(slot)) return Post::again;
  Sink probe_only;
  probe_only.only_polls = true;
  return endpoint(peer, has_tag).recv(0, 0, probe_only, kProbeRequest);
}

bool Messenger::probe_for_plain() {
  bool has_moved = false;
  const std::uint32_t first = next_probed_;
  for (std::uint32_t i = 0; i < group_.size() && matcher_.waits_for_any(0); ++i) {
    const std::uint32_t peer = (first + i) % group_.size();
    if (peer == group_.rank() || probe(peer, false) != Post::done) continue;
    const MessageMatcher::Message message{peer, 0, 0};
    if (const auto receive = matcher_.announce(message)) take(*receive, message);
    while (const auto held = matcher_.take_unrivalled(0)) begin(*held->operation, held->source);
    next_probed_ = peer + 1;
    has_moved = true;
  }
  return has_moved;
}

// Of peers that owe an announcement or a clearance; the end of one comes as an event.
void Messenger::probe_for_ends() {
  std::vector<bool> is_awaited(peers_.size(), false);
  for (const auto& [send, operation] : sends_) is_awaited[send.first] = true;
  for (const auto& [place, receive] : matcher_.posted()) {
    if (receive.tag == 0) continue;
    if (receive.source != kFromAnyRank) is_awaited[receive.source] = true;
    if (receive.source == kFromAnyRank) is_awaited.assign(peers_.size(), true);
  }
  is_awaited[group_.rank()] = false;
  for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) {
    if (is_awaited[peer]) static_cast<void>(probe(peer, true));
  }
}

void Messenger::on_gone(std::uint32_t peer, bool has_tag) {
  peers_[peer].is_gone[has_tag] = true;
  check_senders();
}

bool Messenger::are_all_gone(bool has_tag) const {
  for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) {
    if (peer != group_.rank() && !peers_[peer].is_gone[has_tag]) return false;
  }
  return true;
}

void Messenger::check_senders() {
  for (const auto& [send, operation] : sends_) check_send(*operation, send.first);
  for (const auto& [place, receive] : matcher_.posted()) check_receive(receive);
}

void Messenger::check_send(const Operation& operation, std::uint32_t peer) {
  if (peers_[peer].is_gone[true]) fail_gone(operation, peer, false);
}

void Messenger::check_receive(const MessageMatcher::Receive& receive) {
  const bool has_tag = receive.tag != 0;
  if (receive.source == kFromAnyRank) {
    const std::uint32_t first = group_.rank() == 0 ? 1 : 0;
    if (are_all_gone(has_tag)) fail_gone(*receive.operation, first, true);
  } else if (peers_[receive.source].is_gone[has_tag]) {
    fail_gone(*receive.operation, receive.source, false);
  }
}

// The first cause stays. `is_last`: no other rank is left either.
void Messenger::fail_gone(const Operation& operation, std::uint32_t peer, bool is_last) {
  if (group_.has_failed()) return;
  const Status cause = group_.cause_of_loss(peer, describe_call(operation.call()));
  group_.fail(is_last && cause.code() == StatusCode::peer_failed
                  ? Status(StatusCode::peer_failed,
                           fmt::format("all other ranks are gone during {}", describe_call(operation.call())),
                           static_cast<int>(peer))
                  : cause);
}

// -- for people ---------------------------------------------------------------------------------------------

std::string Messenger::name_senders(bool has_tag) const {
  std::vector<std::uint32_t> ranks;
  for (std::uint32_t peer = 0; peer < peers_.size(); ++peer) {
    if (peer != group_.rank() && !peers_[peer].is_gone[has_tag]) ranks.push_back(peer);
  }
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

std::string Messenger::describe(const Operation& operation) const {
  constexpr std::size_t kMostNamed = 8;
  const Call& call = operation.call();
  std::string text = describe_call(call);
  if (call.is_send) return text + fmt::format(" (rank {} has called no receive that takes it)", call.root);
  text += fmt::format(
      " (nothing has come that it takes; {} could still send it",
      call.root == kFromAnyRank ? name_senders(call.tag != 0) : fmt::format("rank {}", call.root));
  const char* separator = "; not received yet: ";
  std::size_t named = 0;
  for (const auto& [place, message] : matcher_.announced()) {
    if (++named > kMostNamed) break;
    text += fmt::format("{}tag {} of rank {}", separator, message.tag, message.source);
    separator = ", ";
  }
  return text + ")";
}

}  // namespace tutti
