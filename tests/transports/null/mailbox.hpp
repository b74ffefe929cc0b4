// The wire of the null network: a queue of packets for each driver, found by its number. Any thread.
// Knows no worker and no link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "transports/message/operations.hpp"
#include "transports/message/wire.hpp"

namespace tutti::null {

class Mailbox;

// A long message: its bytes stay in the sender's memory until they are fetched, dropped or taken back.
class Remote {
 public:
  Remote(std::shared_ptr<Mailbox> sender, const message::RangeList& ranges)
      : sender_(std::move(sender)), ranges_(ranges) {}

  // False if the sender has taken it back.
  bool copy_to(std::span<const iovec> ranges);
  void drop();
  // False if the receiver has fetched or dropped it.
  bool take_back();
  bool is_over() const;

 private:
  enum class State : std::uint8_t { offered, over, taken_back };
  mutable std::mutex mutex_;
  std::shared_ptr<Mailbox> sender_;  // woken when it is over
  const message::RangeList& ranges_;
  State state_ = State::offered;
};

struct Packet {
  enum class Kind : std::uint8_t { message, notice, news };
  Kind kind = Kind::news;  // a Remote is over
  message::MessageHeader header;
  message::Notice notice;
  std::shared_ptr<Mailbox> sender;  // of a notice, for the answer
  std::uint64_t total_bytes = 0;
  std::vector<std::byte> bytes;    // of a short message
  std::shared_ptr<Remote> remote;  // of a long one
};

class Mailbox {
 public:
  // Entered in the directory of this process.
  static std::shared_ptr<Mailbox> make();
  // Null if there is none (any more).
  static std::shared_ptr<Mailbox> find(std::uint64_t number);

  Mailbox(std::uint64_t number, int event_fd) : number_(number), event_fd_(event_fd) {}
  ~Mailbox();
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  std::uint64_t number() const { return number_; }
  int event_fd() const { return event_fd_; }
  void put(std::unique_ptr<Packet> packet);
  std::unique_ptr<Packet> take();  // null if there is none
  // After it, event_fd() becomes readable with the next packet. False if there is one.
  bool arm();
  // Its driver has ended; what was put by it elsewhere was put before.
  void close();
  bool is_closed() const;

 private:
  const std::uint64_t number_;
  const int event_fd_;
  mutable std::mutex mutex_;
  std::deque<std::unique_ptr<Packet>> packets_;
  bool is_closed_ = false;
};

}  // namespace tutti::null
