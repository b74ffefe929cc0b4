// Matches messages and receives by source and tag. Of the receives that accept a message, the one posted first
// takes it. Of the messages that a receive accepts, it takes the one announced first. Knows of an operation only
// its address, and no transport.
//
// Queues by source and tag, so that a match takes the same time however many wait. Any source has queues of
// its own; numbers in order of arrival decide between those.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "runtime/base/call.hpp"

namespace tutti {

class Operation;

class MessageMatcher {
 public:
  struct Message {
    std::uint32_t source = 0;
    std::uint32_t tag = 0;
    std::uint32_t number = 0;  // by which its sender knows it
    bool operator==(const Message&) const = default;
  };
  struct Receive {
    std::uint32_t source = 0;  // or kFromAnyRank
    std::uint32_t tag = 0;
    Operation* operation = nullptr;
    bool operator==(const Receive&) const = default;
  };
  // By their place in the order in which they came.
  using Receives = std::map<std::uint64_t, Receive>;
  using Messages = std::map<std::uint64_t, Message>;

  // The announced message that the receive takes; if there is none, it is posted.
  std::optional<Message> post(const Receive& receive);
  // The posted receive that takes the message; if there is none, it is kept.
  std::optional<Receive> announce(const Message& message);
  // A posted receive that ends without a message. False if it is not posted.
  bool withdraw(const Receive& receive);

  // Is a receive of that tag posted that takes it from any source?
  bool waits_for_any(std::uint32_t tag) const { return receives_.count(key_of(kFromAnyRank, tag)) != 0; }
  // Takes a receive of that tag from one source, if no receive from any source is posted before it. Nothing else
  // then competes for its source's messages, so their order is match enough.
  std::optional<Receive> take_unrivalled(std::uint32_t tag);

  // In order.
  const Receives& posted() const { return posted_; }
  const Messages& announced() const { return announced_; }

 private:
  using Key = std::uint64_t;  // source and tag
  static constexpr Key key_of(std::uint32_t source, std::uint32_t tag) {
    return std::uint64_t{source} << 32U | tag;
  }
  static constexpr std::uint32_t kAllOfTag = kFromAnyRank - 1;
  // Places in the order, by key; no key without any.
  using Queues = std::unordered_map<Key, std::set<std::uint64_t>>;
  static std::optional<std::uint64_t> first_of(const Queues& queues, Key key);
  static void drop(Queues& queues, Key key, std::uint64_t place);
  Receive take_receive(std::uint64_t place);
  Message take_message(std::uint64_t place);

  std::uint64_t next_place_ = 0;
  Receives posted_;
  Queues receives_;  // each also under kAllOfTag
  Messages announced_;
  Queues messages_;  // each also under kAllOfTag
};

}  // namespace tutti
