// Queues that transports keep: what waits its turn, and events on their way to the caller.
// Knows no transport.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "transports/transport.hpp"

namespace tutti {

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
  // From the start as large as most collectives ever need: how long a queue gets depends on late ranks, and
  // a late call should not be the one that allocates.
  static constexpr std::size_t kInitialItems = 32;
  std::vector<T> items_ = std::vector<T>(kInitialItems);
  std::uint64_t head_ = 0;
  std::uint64_t tail_ = 0;
};

// Collects events: in the caller's span while there is room, then in the transport's queue.
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
  // True if push() allocates nothing. Work that can be put off is put off otherwise; push() always succeeds.
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

}  // namespace tutti
