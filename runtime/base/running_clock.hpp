// The counter behind RunningClock, and sleeping until one of its times. Knows no operation.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <limits>
#include <mutex>

#include "tutti/clock.hpp"

namespace tutti {

// Clock is for deadlines and timeouts. Measurements use SteadyClock.
using Clock = RunningClock;
using SteadyClock = std::chrono::steady_clock;

// Counts time between readings. A gap longer than kLongestGap counts as Clock::kLongestSleep. Any thread.
class RunTimeCounter {
 public:
  // Longer than a sleep, because a busy machine wakes threads late.
  static constexpr std::chrono::milliseconds kLongestGap{500};

  // The first reading is `start`.
  explicit constexpr RunTimeCounter(std::chrono::nanoseconds start) : last_reading_(start.count()) {}
  // The time counted until `now`, a reading of any clock that never goes back. A `now` that is older than the
  // last reading gives the last reading.
  std::chrono::nanoseconds read(std::chrono::nanoseconds now) noexcept;

 private:
  // Readings so close together share one store: waiting threads read often.
  static constexpr std::chrono::milliseconds kResolution{1};

  static constexpr std::chrono::nanoseconds::rep kNotBegun =
      std::numeric_limits<std::chrono::nanoseconds::rep>::min();

  std::atomic<std::chrono::nanoseconds::rep> left_out_{kNotBegun};
  std::atomic<std::chrono::nanoseconds::rep> last_reading_;
};

// Time to sleep until `end`: zero if it has passed, and never so long that the clock stops.
inline Clock::duration sleep_until_reading(Clock::time_point end, Clock::time_point now = Clock::now()) {
  return std::min<Clock::duration>(end > now ? end - now : Clock::duration::zero(), Clock::kLongestSleep);
}

// The same in milliseconds for poll(2).
inline int poll_milliseconds(Clock::time_point end) {
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(sleep_until_reading(end)).count());
}

// Waits for a condition on data that `lock` guards; false if it does not hold at `end`.
template <class Condition>
bool wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Clock::time_point end,
                Condition condition) {
  while (!condition()) {
    const Clock::time_point now = Clock::now();
    if (now >= end) return false;
    changed.wait_for(lock, sleep_until_reading(end, now));
  }
  return true;
}

template <class Condition>
bool wait_for(std::condition_variable& changed, std::unique_lock<std::mutex>& lock, Clock::duration at_most,
              Condition condition) {
  return wait_until(changed, lock, Clock::now() + at_most, condition);
}

}  // namespace tutti
