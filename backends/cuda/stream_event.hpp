// Events: how far a stream has come, asked without stopping the host; and a pool of them.
// Knows no work.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/cuda/driver.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/work.hpp"

namespace tutti::cuda {

class EventPool;

// An event of a pool's device, without timing; goes back to the pool when this ends.
// The calling thread of record() is in the context of the stream.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(event_, other.event_);
    return *this;
  }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  explicit operator bool() const { return event_ != nullptr; }
  CUevent get() const { return event_; }
  // Marks the place behind all that `stream` was given so far.
  Status record(CUstream stream);
  // Has the device come past the mark? An error that the device met before is returned here, if not
  // elsewhere.
  Result<bool> query() const;
  // Lets the host wait until then, or until `deadline` (timeout). Polls, with sleeps that grow to
  // kLongestSleep, so that a hung device does not hang the host.
  Status wait(Clock::time_point deadline) const;
  // Makes what `stream` is given from now on wait for the mark; the host does not.
  Status hold(CUstream stream) const;

  static constexpr std::chrono::microseconds kLongestSleep{200};

 private:
  friend class EventPool;
  Event(EventPool* pool, CUevent event) : pool_(pool), event_(event) {}
  EventPool* pool_ = nullptr;
  CUevent event_ = nullptr;
};

// Events of one device, made when needed and kept. Outlives its events. Any thread.
class EventPool {
 public:
  explicit EventPool(int device) : device_(device) {}
  ~EventPool();
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  Result<Event> take();
  int device() const { return device_; }

 private:
  friend class Event;
  void give_back(CUevent event);

  const int device_;
  std::mutex mutex_;
  std::vector<CUevent> idle_;
};

// Calls that use the same memory, whatever streams they are on, one after the other. The calling thread is in
// the context of the streams.
class CallOrder {
 public:
  explicit CallOrder(EventPool& events) : events_(events) {}
  // Before a call gives anything to its stream, and when it has given everything.
  Status begin(CUstream stream) const;
  Status end(CUstream stream);
  // Behind the last call; empty before the first.
  const Event& last() const { return last_; }

 private:
  EventPool& events_;
  Event last_;
  CUstream last_stream_ = nullptr;
};

// unsupported, as `what` cannot be captured, if the stream is being captured into a CUDA graph; says `why`.
Status refuse_capture(CUstream stream, std::string_view what, std::string_view why);

// A stream of our own, which does not wait for the legacy default stream; destroyed with this, when its work
// is done. Made and destroyed in its device's context.
class Stream {
 public:
  static Result<Stream> create(int device);
  Stream(Stream&& other) noexcept : device_(other.device_), stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(stream_, other.stream_);
    return *this;
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream();

  CUstream get() const { return stream_; }
  int device() const { return device_; }

 private:
  Stream(int device, CUstream stream) : device_(device), stream_(stream) {}
  int device_;
  CUstream stream_;
};

}  // namespace tutti::cuda
