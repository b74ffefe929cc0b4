// Which message goes to which receive, by source and tag: of the receives that accept a message the one that
// was posted first takes it, and of the messages that a receive accepts it takes the one that was announced
// first. Knows of an operation only its address, and no transport.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

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

  // The announced message that the receive takes; if there is none, it is posted.
  std::optional<Message> post(const Receive& receive);
  // The posted receive that takes the message; if there is none, it is kept.
  std::optional<Receive> announce(const Message& message);
  // A posted receive that ends without a message. False if it is not posted.
  bool withdraw(const Operation* operation);

  // Is a receive of that tag posted that takes it from any source?
  bool waits_for_any(std::uint32_t tag) const;
  // Takes a receive of that tag from one source in front of which no receive from any source is posted:
  // nothing else competes for its source's messages, so their order is match enough.
  std::optional<Receive> take_unrivalled(std::uint32_t tag);

  // In order.
  std::span<const Receive> posted() const { return posted_; }
  std::span<const Message> announced() const { return announced_; }

 private:
  std::vector<Receive> posted_;
  std::vector<Message> announced_;
};

}  // namespace tutti
