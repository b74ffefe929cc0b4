// The messages of a group that are matched before they move: those with a tag, and receives from any source.
// Knows no wire; what it tells other ranks goes as control messages of their endpoints.
//
// A send with a tag announces itself to the receiver, whose messenger answers with a clearance once a receive takes
// it. Only then the payload moves, behind those that were cleared before it. So a message that nobody receives
// blocks no other.
//
// Sends of tag 0 are not announced: the order of a pair's messages is their match. A receive of tag 0 from any source
// probes the endpoints for messages that have arrived. Later receives from one source wait behind it.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/base/call.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/work.hpp"
#include "runtime/scheduler/message_matcher.hpp"
#include "transports/transport.hpp"

namespace tutti {

class GroupContext;

// Everything with the progress lock held.
class Messenger {
 public:
  explicit Messenger(GroupContext& group);
  Messenger(const Messenger&) = delete;
  Messenger& operator=(const Messenger&) = delete;

  // Or is the order of its pair's messages match enough?
  bool must_match(const Call& call) const {
    return call.tag != 0 || call.root == kFromAnyRank ||
           (!call.is_send && !matcher_.posted().empty() && matcher_.waits_for_any(0));
  }
  // Submits a call that must be matched. Errors, nothing submitted: what opening an endpoint says.
  Result<WorkRef> submit(const Call& call, std::uint32_t kind);  // message_kind()
  // An operation that is not matched yet has failed.
  void forget(const Operation& operation);
  // The group ends: its endpoints are about to be closed.
  void leave();
  // Are there operations that are not matched yet?
  bool has_operations() const { return !matcher_.posted().empty() || !sends_.empty(); }
  bool has_work() const { return has_operations() || unsent_count_ > 0; }

  // For the engine. Sends what could not be sent, and probes for messages that have arrived; before somebody sleeps also
  // for peers that are gone. True if anything moved, or may move without an event.
  bool progress(bool before_sleep);
  void on_note(std::uint32_t peer, ConstByteRange bytes);
  void on_gone(std::uint32_t peer, bool has_tag);

  // "send_recv of 4 f32 from any rank, tag 3 (no such message yet; ranks 0 and 2 could send it)"
  std::string describe(const Operation& operation) const;

 private:
  struct Note {
    enum class Kind : std::uint32_t { announcement, clearance };
    Kind kind = Kind::announcement;
    std::uint32_t tag = 0;
    std::uint32_t number = 0;  // of the announcement
  };
  struct Peer {
    std::deque<Note> unsent;
    std::uint32_t next_number = 0;
    std::array<bool, 2> is_gone{};  // of messages without a tag, with one: nothing more will come
  };

  Status open(const Call& call);
  Endpoint& endpoint(std::uint32_t peer, bool has_tag) const;             // that was opened
  void hold(Operation& operation, const Call& call, std::uint32_t kind);  // until it is matched
  void begin(Operation& operation, std::uint32_t peer);
  void take(const MessageMatcher::Receive& receive, const MessageMatcher::Message& message);
  void tell(std::uint32_t peer, const Note& note);
  bool send_notes();
  bool probe_for_plain();
  Post probe(std::uint32_t peer, bool has_tag);
  void probe_for_ends();
  // Fails the group where an operation waits for ranks that are all gone: this one, or any.
  void check_senders();
  void check_send(const Operation& operation, std::uint32_t peer);
  void check_receive(const MessageMatcher::Receive& receive);
  void fail_gone(const Operation& operation, std::uint32_t peer, bool is_last);
  bool are_all_gone(bool has_tag) const;
  std::string name_senders(bool has_tag) const;

  GroupContext& group_;
  MessageMatcher matcher_;
  // Sends that are not cleared yet, by the receiver and the number of the announcement.
  using Sends = std::map<std::pair<std::uint32_t, std::uint32_t>, Operation*>;
  Sends sends_;
  std::unordered_map<const Operation*, Sends::iterator> send_of_;
  std::vector<Peer> peers_;  // empty before the first message that must be matched
  std::size_t unsent_count_ = 0;
  std::uint32_t next_probed_ = 0;  // rank at which the next round of probes begins: everybody has a turn
};

}  // namespace tutti
