// What the endpoints of one lane share: finished events, the bell towards peers, a bounce buffer.
// Knows no protocol. Everything here belongs to the lane's owner.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
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
    if (count() == items_.size()) grow();
    items_[tail_++ & (items_.size() - 1)] = item;
  }

 private:
  void grow() {
    std::vector<T> larger(items_.size() * 2);
    const std::size_t n = count();
    for (std::size_t i = 0; i < n; ++i) larger[i] = (*this)[i];
    items_ = std::move(larger);
    head_ = 0;
    tail_ = n;
  }
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
  bool has_room() const { return count_ < out_.size(); }
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

struct Lane {
  static constexpr std::size_t kBounceBytes = std::size_t{64} << 10U;

  std::uint32_t index = 0;
  bool is_armed = false;
  bool uses_fence = false;  // the sleeper cannot use membarrier: publishing must order itself
  std::uint32_t control_seen = 0;
  std::uint32_t idle_count = 0;
  std::uint32_t arm_count = 0;
  std::uint32_t open_count = 0;
  std::vector<MemoryEndpoint*> endpoints;  // all that are open
  std::vector<MemoryEndpoint*> active;     // those with something pending
  Fifo<Event> waiting;                     // events that found no room
  // Control bytes handed out by the last progress().
  std::deque<std::array<std::byte, kControlBytes>> control_bytes;
  std::unique_ptr<std::array<std::byte, kBounceBytes>> bounce_buffer;

  ByteRange bounce() {
    if (!bounce_buffer) bounce_buffer = std::make_unique<std::array<std::byte, kBounceBytes>>();
    return *bounce_buffer;
  }
};

}  // namespace tutti::memory
