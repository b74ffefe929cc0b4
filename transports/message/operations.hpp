// Pooled operations: sends, receives, and bounce buffers for messages that are delivered in place. Knows no
// peer and no matching.
#pragma once

#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <span>
#include <vector>

#include "transports/message/wire.hpp"
#include "transports/transport.hpp"

namespace tutti::message {

class MessageEndpoint;

// Objects that stay where they are: libraries hold their addresses. Made many at a time, so that a call that
// finds more under way than any before it seldom is the one that allocates.
template <class T>
class Pool {
 public:
  T* take() {
    if (idle_.empty()) make_more();
    T* const object = idle_.back();
    idle_.pop_back();
    return object;
  }
  void give_back(T* object) { idle_.push_back(object); }
  std::size_t used_count() const { return all_.size() - idle_.size(); }
  void make_more(std::size_t fewest = kFewest) {
    const std::size_t count = std::max(fewest, all_.size());
    all_.reserve(all_.size() + count);
    idle_.reserve(all_.size() + count);
    for (std::size_t i = 0; i < count; ++i) {
      all_.push_back(std::make_unique<T>());
      idle_.push_back(all_.back().get());
    }
  }

 private:
  static constexpr std::size_t kFewest = 64;
  std::vector<std::unique_ptr<T>> all_;
  std::vector<T*> idle_;
};

// Objects under way, linked through themselves: adding one allocates nothing.
template <class T>
class OpList {
 public:
  bool empty() const { return first_ == nullptr; }
  std::size_t count() const { return count_; }
  void add(T* op) {
    op->previous = nullptr;
    op->next = first_;
    if (first_ != nullptr) first_->previous = op;
    first_ = op;
    ++count_;
  }
  void remove(T* op) {
    (op->previous != nullptr ? op->previous->next : first_) = op->next;
    if (op->next != nullptr) op->next->previous = op->previous;
    --count_;
  }
  // `visit` may remove the one that it is given.
  template <class F>
  void each(const F& visit) const {
    for (T *op = first_, *next = nullptr; op != nullptr; op = next) {
      next = op->next;
      visit(op);
    }
  }

 private:
  T* first_ = nullptr;
  std::size_t count_ = 0;
};

// A list of ranges, none of them empty, in the form that libraries take; it keeps its storage.
class RangeList {
 public:
  RangeList() { items_.reserve(kUsualCount); }
  template <class Range>
  void assign(std::span<const Range> ranges) {
    items_.clear();
    for (const Range& range : ranges) {
      if (range.empty()) continue;
      items_.push_back({const_cast<std::byte*>(range.data()), range.size()});
    }
  }
  std::span<const iovec> items() const { return items_; }
  std::size_t bytes() const {
    std::size_t sum = 0;
    for (const iovec& item : items_) sum += item.iov_len;
    return sum;
  }

 private:
  static constexpr std::size_t kUsualCount = 16;
  std::vector<iovec> items_;
};

// A message or control message that the driver may read until it says that it is done.
struct SendOp {
  MessageEndpoint* endpoint = nullptr;          // null: nobody wants to know
  SendOp *previous = nullptr, *next = nullptr;  // in the endpoint's list
  bool is_message = false;                      // an event is due; otherwise a control message
  RequestId request = 0;
  MessageHeader header;
  RangeList ranges;
  std::array<std::byte, kControlBytes> bytes{};  // of a control message
  void* work = nullptr;                          // the driver's
};

struct RecvOp {
  enum class State : std::uint8_t {
    posted,    // waits for its message
    moving,    // the driver is fetching it
    fetched,   // lies in `bounce`, to be delivered
    received,  // complete
    mismatch,  // complete: another match header or length, which are in `match_header`, `bytes`
    failed,    // complete
  };
  State state = State::posted;
  MessageEndpoint* endpoint = nullptr;          // null: it was closed while the driver was fetching
  RecvOp *previous = nullptr, *next = nullptr;  // in the endpoint's list
  RequestId request = 0;
  std::uint64_t match_header = 0;
  std::uint64_t bytes = 0;
  Sink sink;
  RangeList ranges;
  ByteRange bounce;
  void* work = nullptr;  // the driver's
};

// Memory for messages that lie somewhere before they are delivered.
class BouncePool {
 public:
  BouncePool() = default;
  ~BouncePool() {
    for (const ByteRange memory : idle_) free(memory);
  }
  BouncePool(const BouncePool&) = delete;
  BouncePool& operator=(const BouncePool&) = delete;

  // At least `bytes` of it, aligned for kernels; empty if there is no memory.
  ByteRange take(std::size_t bytes) {
    std::size_t best = idle_.size();
    for (std::size_t i = 0; i < idle_.size(); ++i) {
      const bool fits = idle_[i].size() >= bytes && idle_[i].size() / 4 <= bytes;
      if (fits && (best == idle_.size() || idle_[i].size() < idle_[best].size())) best = i;
    }
    if (best == idle_.size()) {
      auto* fresh = static_cast<std::byte*>(::operator new(bytes, kAlignment, std::nothrow));
      return fresh == nullptr ? ByteRange{} : ByteRange{fresh, bytes};
    }
    const ByteRange found = idle_[best];
    idle_[best] = idle_.back();
    idle_.pop_back();
    idle_bytes_ -= found.size();
    return found;
  }
  void give_back(ByteRange memory) {
    if (memory.empty()) return;
    idle_.push_back(memory);
    idle_bytes_ += memory.size();
    for (; idle_bytes_ > kMostIdleBytes; idle_.erase(idle_.begin())) {  // the one that lies longest
      idle_bytes_ -= idle_.front().size();
      free(idle_.front());
    }
  }

 private:
  static constexpr std::align_val_t kAlignment{64};
  static constexpr std::size_t kMostIdleBytes = std::size_t{256} << 20U;
  static void free(ByteRange memory) { ::operator delete(memory.data(), kAlignment); }

  std::vector<ByteRange> idle_;
  std::size_t idle_bytes_ = 0;
};

}  // namespace tutti::message
