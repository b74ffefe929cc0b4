// What the endpoints of one lane share: finished events, the bell towards peers, a bounce buffer.
// Knows no protocol. Everything here belongs to the lane's owner.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "transports/memory/instance.hpp"
#include "transports/transport.hpp"

namespace tutti::memory {

class MemoryEndpoint;

// A first-in-first-out queue that keeps its storage, so that a steady state allocates nothing.
template <class T>
class Fifo {
 public:
  bool empty() const { return head_ == tail_; }
  std::size_t count() const { return static_cast<std::size_t>(tail_ - head_); }
  T& front() { return items_[head_ & (items_.size() - 1)]; }
  T& operator[](std::size_t i) { return items_[(head_ + i) & (items_.size() - 1)]; }
  void pop_front() { ++head_; }
  void push_back(const T& item) {
    if (is_full()) reserve(items_.size() + 1);
    items_[tail_++ & (items_.size() - 1)] = item;
  }
  bool is_full() const { return count() == items_.size(); }
  std::size_t capacity() const { return items_.size(); }
  void reserve(std::size_t count_wanted) {
    if (count_wanted <= items_.size()) return;
    std::vector<T> larger(std::bit_ceil(count_wanted));
    const std::size_t n = count();
    for (std::size_t i = 0; i < n; ++i) larger[i] = (*this)[i];
    items_ = std::move(larger);
    head_ = 0;
    tail_ = n;
  }

 private:
  // From the start as large as most collectives ever need: how long a queue gets depends on who is late, and
  // a late call should not be the one that allocates.
  static constexpr std::size_t kInitialItems = 32;
  std::vector<T> items_ = std::vector<T>(kInitialItems);
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
};

// Where events go: into the caller's span while there is room, else they wait in the lane.
class EventSink {
 public:
  EventSink(std::span<Event> out, Fifo<Event>* waiting) : out_(out), waiting_(waiting) {
    while (has_room() && !waiting_->empty()) {
      out_[count_++] = waiting_->front();
      waiting_->pop_front();
    }
  }
  // In the caller's span.
  bool has_room() const { return count_ < out_.size(); }
  // Without an allocation. Whoever can put work off asks first; there is always room for what cannot wait.
  bool can_push() const { return has_room() || !waiting_->is_full(); }
  void push(const Event& event) {
    if (has_room() && waiting_->empty()) {
      out_[count_++] = event;
    } else {
      waiting_->push_back(event);
    }
  }
  std::size_t count() const { return count_; }

 private:
  std::span<Event> out_;
  Fifo<Event>* waiting_;
  std::size_t count_ = 0;
};

// A closed endpoint whose memory a peer may still read.
struct Remains;

// Endpoints to one peer that were opened in a row, before any of them was used: contexts for the same kind of
// traffic in turn, such as the slots of a group. What one of them turns out to need is prepared on all, so
// that the traffic finds everything in place when its next turn comes.
struct Siblings {
  // More contexts than anybody takes turns with: what one context needs is not to be prepared a thousand
  // times.
  static constexpr std::size_t kMaxMembers = 8;
  std::vector<MemoryEndpoint*> members;  // those that are open
  bool is_used = false;                  // and complete
};

struct Lane {
  static constexpr std::size_t kBounceBytes = std::size_t{64} << 10U;
  using Bounce = std::array<std::byte, kBounceBytes>;

  std::uint32_t index = 0;
  bool is_armed = false;
  bool uses_fence = false;  // the sleeper cannot use membarrier: publishing must order itself
  std::uint32_t control_seen = 0;
  std::uint32_t idle_count = 0;
  std::uint32_t arm_count = 0;
  std::uint32_t open_count = 0;
  std::vector<MemoryEndpoint*> endpoints;   // all that are open
  std::vector<MemoryEndpoint*> active;      // those with something pending
  Fifo<Event> waiting;                      // events that found no room
  std::size_t next_active = 0;              // where progress() goes on, so that everybody has a turn
  std::shared_ptr<Siblings> last_siblings;  // of the endpoint that was opened last
  // Control bytes handed out by the last progress(); entries are kept for later ones.
  std::deque<std::array<std::byte, kControlBytes>> control_bytes;
  std::size_t control_bytes_count = 0;
  // Made with the first endpoint.
  std::unique_ptr<Bounce> bounce_buffer;

  ByteRange bounce() { return *bounce_buffer; }
  ConstByteRange keep_control(ConstByteRange bytes) {
    if (control_bytes_count == control_bytes.size()) control_bytes.emplace_back();
    std::byte* to = control_bytes[control_bytes_count++].data();
    std::memcpy(to, bytes.data(), bytes.size());
    return {to, bytes.size()};
  }
};

}  // namespace tutti::memory
