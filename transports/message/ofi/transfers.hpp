// Long messages under way, which travel as many packets after the receiver has asked for them.
// Knows no connection's state and no completion queue.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <vector>

#include "transports/message/ofi/packets.hpp"
#include "transports/message/operations.hpp"
#include "transports/message/peer.hpp"
#include "transports/queues.hpp"

namespace tutti::ofi {

// Where one is in a list of ranges that is read or written from front to back.
class RangeCursor {
 public:
  void start(std::span<const iovec> ranges) {
    ranges_ = ranges;
    offset_ = 0;
  }
  void copy_out(std::byte* to, std::size_t bytes) {
    each(bytes, [&](std::byte* at, std::size_t n) {
      std::memcpy(to, at, n);
      to += n;
    });
  }
  void copy_in(const std::byte* from, std::size_t bytes) {
    each(bytes, [&](std::byte* at, std::size_t n) {
      std::memcpy(at, from, n);
      from += n;
    });
  }

 private:
  template <class F>
  void each(std::size_t bytes, const F& move) {
    while (bytes != 0 && !ranges_.empty()) {
      const std::size_t n = std::min(bytes, ranges_[0].iov_len - offset_);
      move(static_cast<std::byte*>(ranges_[0].iov_base) + offset_, n);
      bytes -= n;
      offset_ += n;
      if (offset_ != ranges_[0].iov_len) continue;
      ranges_ = ranges_.subspan(1);
      offset_ = 0;
    }
  }

  std::span<const iovec> ranges_;
  std::size_t offset_ = 0;
};

// A long message to a peer: announced with its beginning, then asked for, then streaming.
struct Outgoing {
  message::SendOp* op = nullptr;
  Connection* connection = nullptr;
  std::uint64_t request_id = 0;
  std::uint64_t peer_request_id = 0;  // 0: not asked for yet
  std::uint64_t bytes = 0;
  std::uint64_t allowed_bytes = 0;  // that may be sent by now
  std::uint64_t sent_bytes = 0;
  RangeCursor cursor;
  bool is_listed = false;  // among those that can go on
};

// A long message from a peer: announced, then matched.
struct Incoming {
  message::RecvOp* op = nullptr;  // null until it has matched
  message::Peer* peer = nullptr;
  std::uint64_t request_id = 0;
  std::uint64_t peer_request_id = 0;
  std::uint64_t bytes = 0;
  std::uint64_t arrived_bytes = 0;
  std::uint64_t delivered_bytes = 0;
  RangeCursor cursor;
  Fifo<Packet*> pieces;  // arrived, not delivered
  bool is_dead = false;  // no more will come
};

// Objects that the other end names by number. A number is not used again: what comes late finds nothing.
template <class T>
class RequestTable {
 public:
  T* take() {
    if (idle_.empty()) make_more();
    const std::uint32_t index = idle_.back();
    idle_.pop_back();
    T* item = items_[index].get();
    item->request_id = (++generation_ << kIndexBits) | index;
    used_.push_back(item);
    return item;
  }
  // Null if there is no such request_id (any more).
  T* find(std::uint64_t request_id) const {
    const std::uint64_t index = request_id & ((std::uint64_t{1} << kIndexBits) - 1);
    return request_id != 0 && index < items_.size() && items_[index]->request_id == request_id
               ? items_[index].get()
               : nullptr;
  }
  void give_back(T* item) {
    std::erase(used_, item);
    idle_.push_back(static_cast<std::uint32_t>(item->request_id & ((std::uint64_t{1} << kIndexBits) - 1)));
    item->request_id = 0;
  }
  const std::vector<T*>& used() const { return used_; }

 private:
  static constexpr std::uint32_t kIndexBits = 24;
  // Many at a time, so that a call that finds more under way than any before it seldom is the one that
  // allocates.
  void make_more() {
    constexpr std::size_t kFewest = 64;
    const std::size_t count = std::max(kFewest, items_.size());
    items_.reserve(items_.size() + count);
    idle_.reserve(items_.size() + count);
    used_.reserve(items_.size() + count);
    for (std::size_t i = 0; i < count; ++i) {
      idle_.push_back(static_cast<std::uint32_t>(items_.size()));
      items_.push_back(std::make_unique<T>());
    }
  }

  std::vector<std::unique_ptr<T>> items_;
  std::vector<std::uint32_t> idle_;
  std::vector<T*> used_;
  std::uint64_t generation_ = 0;
};

}  // namespace tutti::ofi
