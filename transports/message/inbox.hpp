// Arrivals from one peer in one context: messages in order, by channel, and whether more can come.
// Knows no receive: matching is the endpoint's business. It exists before the peer's endpoint is opened here
// and after it was closed.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "transports/message/wire.hpp"
#include "transports/message/wire_driver.hpp"
#include "transports/queues.hpp"

namespace tutti::message {

class Peer;
class MessageEndpoint;

class Inbox {
 public:
  Inbox(WireDriver& driver, Peer& from, std::uint64_t number)
      : peer(from), context(number), driver_(driver) {}
  ~Inbox() { clear(); }
  Inbox(const Inbox&) = delete;
  Inbox& operator=(const Inbox&) = delete;

  void add(std::uint64_t channel, const Arrival& arrival);
  bool has_next(std::uint64_t channel) const;
  // The next message of the channel, if it is there. The caller releases its `hold`.
  bool take(std::uint64_t channel, Arrival* next);
  // Gives everything back that lies here.
  void clear();

  // The peer has closed its side after so many messages. Messages whose bytes are still there are lost.
  void close_by_peer(std::uint64_t message_count);
  bool is_closed_by_peer() const { return is_closed_by_peer_; }
  // Nothing will be added any more.
  bool is_ended() const;
  void count_message() { ++message_count_; }
  std::uint64_t message_count() const { return message_count_; }

  Peer& peer;
  const std::uint64_t context;
  MessageEndpoint* endpoint = nullptr;  // while it is open here
  bool is_closed_here = false;
  bool is_listed = false;       // among those that have news
  bool wants_peer = false;      // a receive waits: see to it that we would hear of the peer's end
  bool has_said_hello = false;  // or something else that makes the peer know us
  bool is_peer_told = false;    // that it is closed here
  bool owes_notice = false;     // the peer is to be told

 private:
  struct Channel {
    Fifo<Arrival> arrivals;  // by sequence
    std::uint64_t next_sequence = 0;
  };
  void release(const Arrival& arrival);

  WireDriver& driver_;
  std::array<std::unique_ptr<Channel>, kChannels + 1> channels_;
  std::uint64_t message_count_ = 0;  // received so far
  std::uint64_t last_count_ = 0;     // that the peer has sent
  bool is_closed_by_peer_ = false;
};

}  // namespace tutti::message
