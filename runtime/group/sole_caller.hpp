// Whether one thread makes all calls of a world, and the collective that it waits in. Knows no group.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "runtime/group/diagnosis_frame.hpp"

namespace tutti {

// The threads that have called so far: none, one, or several. A thread that has not called yet is not expected to.
class SoleCaller {
 public:
  // Every thread that submits or makes groups, at least once and before it does.
  void note() {
    const std::thread::id self = std::this_thread::get_id();
    if (thread_.load(std::memory_order_relaxed) != self) note_first(self);
  }
  bool is_this_thread() const {
    return thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }
  // The collective that it waits in, as far as LastingWait::tell() was called; nullopt: none, or several threads
  // call. Any thread.
  std::optional<CallId> awaited() const {
    const std::lock_guard lock(mutex_);
    if (awaited_.sequence == 0 || has_several_.load(std::memory_order_relaxed)) return std::nullopt;
    return awaited_;
  }

 private:
  friend class LastingWait;
  void note_first(std::thread::id self) {
    std::thread::id nobody;
    if (!thread_.compare_exchange_strong(nobody, self, std::memory_order_relaxed) && nobody != self)
      has_several_.store(true, std::memory_order_relaxed);
  }
  void set_awaited(const CallId& call) {
    const std::lock_guard lock(mutex_);
    awaited_ = call;
  }

  std::atomic<std::thread::id> thread_{};
  std::atomic<bool> has_several_{false};
  mutable std::mutex mutex_;
  CallId awaited_;
};

// While it lives, this thread waits in that collective. It goes on once that is complete or its group has failed.
class LastingWait {
 public:
  LastingWait(SoleCaller& callers, const CallId& call)
      : callers_(callers), call_(call), before_(std::exchange(current(), this)) {}
  ~LastingWait() {
    current() = before_;
    if (is_told_) callers_.set_awaited({});
  }
  LastingWait(const LastingWait&) = delete;
  LastingWait& operator=(const LastingWait&) = delete;

  const CallId& call() const { return call_; }
  // Other threads see it from now on: a mutex is too slow for every wait.
  void tell() {
    is_told_ = true;
    callers_.set_awaited(call_);
  }
  // Of this thread; null: it does not wait, or only for a limited time.
  static LastingWait*& current() {
    thread_local LastingWait* wait = nullptr;
    return wait;
  }

 private:
  SoleCaller& callers_;
  const CallId call_;
  LastingWait* const before_;
  bool is_told_ = false;
};

}  // namespace tutti
