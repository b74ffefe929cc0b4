// A deadline that counts only time in which its waiter ran. Knows nothing of what is waited for.
//
// A job can be stopped as a whole: SIGSTOP, a batch system's preemption, a frozen container. Nobody was slow
// then, and no peer may be judged by that time. A stopped thread cannot see that it is stopped, but the time
// between two polls of its own tells it afterwards.
#pragma once

#include <algorithm>
#include <chrono>

namespace tutti {

// Not thread-safe: each waiter has its own.
class WaiterDeadline {
 public:
  using Clock = std::chrono::steady_clock;
  // A waiter polls at least this often. A longer time between two polls is time in which it did not run.
  static constexpr std::chrono::milliseconds kLongestGap{500};

  WaiterDeadline(Clock::time_point at, Clock::time_point now) : at_(at), last_poll_(now) {}

  // To be called at each poll. Returns the time since the last poll in which the waiter did not run.
  Clock::duration note_poll(Clock::time_point now) {
    const Clock::duration gap = now - last_poll_;
    last_poll_ = now;
    if (gap <= kLongestGap) return Clock::duration::zero();
    // A deadline beyond all times stays there.
    at_ += std::min(gap, Clock::time_point::max() - at_);
    return gap;
  }
  bool has_passed(Clock::time_point now) const { return now >= at_; }
  Clock::time_point at() const { return at_; }
  // How long the waiter may sleep now, so that it polls often enough.
  Clock::duration longest_sleep(Clock::time_point now) const {
    return std::min<Clock::duration>(std::max(at_ - now, Clock::duration::zero()), kLongestGap / 2);
  }

 private:
  Clock::time_point at_, last_poll_;
};

}  // namespace tutti
