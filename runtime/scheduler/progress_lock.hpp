// The lock of a progress engine: whoever holds it drives everything that the engine has under way. One
// compare-and-swap; a holder that takes long lets others have it between two pieces of work.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include <sched.h>

#include "runtime/base/running_clock.hpp"

namespace tutti {

class ProgressLock {
 public:
  bool try_acquire() { return !is_held_.exchange(true, std::memory_order_acquire); }
  void acquire() {
    static constexpr std::atomic<bool> kNever{false};
    acquire_unless(kNever);
  }
  // False as soon as `refuses` is set while another thread holds the lock.
  bool acquire_unless(const std::atomic<bool>& refuses) {
    return try_acquire() ||
           wait([&](bool is_acquired) { return is_acquired || refuses.load(std::memory_order_relaxed); });
  }
  bool acquire_before(Clock::time_point end) {
    return try_acquire() || wait([&](bool is_acquired) { return is_acquired || Clock::now() >= end; });
  }
  void release() { is_held_.store(false, std::memory_order_release); }

  // Threads that wait for the lock.
  const std::atomic<std::uint32_t>& wanting() const { return wanting_; }
  bool is_wanted() const { return wanting_.load(std::memory_order_relaxed) != 0; }

 private:
  template <class IsOver>
  bool wait(IsOver is_over) {
    wanting_.fetch_add(1, std::memory_order_relaxed);
    bool is_acquired = false;
    while (!is_over(is_acquired = try_acquire())) ::sched_yield();
    wanting_.fetch_sub(1, std::memory_order_relaxed);
    return is_acquired;
  }

  std::atomic<bool> is_held_{false};
  std::atomic<std::uint32_t> wanting_{0};
};

}  // namespace tutti
