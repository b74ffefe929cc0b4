// Counting. Knows no deadline; see running_clock.hpp.
#include "runtime/base/running_clock.hpp"

namespace tutti {

std::chrono::nanoseconds RunTimeCounter::read(std::chrono::nanoseconds now) noexcept {
  using std::chrono::nanoseconds;
  for (;;) {
    nanoseconds::rep left_out = left_out_.load(std::memory_order_acquire);
    nanoseconds::rep last = last_reading_.load(std::memory_order_acquire);
    if (left_out == kNotBegun) {
      left_out_.compare_exchange_strong(left_out, now.count() - last, std::memory_order_acq_rel);
      continue;
    }
    const nanoseconds running = now - nanoseconds(left_out), gap = running - nanoseconds(last);
    if (gap > kLongestGap) {
      // Several threads may see the gap. One of them subtracts it, and the others try again.
      left_out_.compare_exchange_strong(left_out, left_out + (gap - Clock::kLongestSleep).count(),
                                        std::memory_order_acq_rel);
      continue;
    }
    // The two values belong together only if no thread subtracted a gap between the two loads.
    if (left_out_.load(std::memory_order_acquire) != left_out) continue;
    // Another thread has stored a later reading since this one read the clock. Time must not go back.
    if (gap < nanoseconds::zero()) return nanoseconds(last);
    if (gap >= kResolution)
      last_reading_.compare_exchange_strong(last, running.count(), std::memory_order_acq_rel);
    return running;
  }
}

RunningClock::time_point RunningClock::now() noexcept {
  constexpr std::chrono::hours kStart{24};
  static constinit RunTimeCounter counter(kStart);
  return time_point(counter.read(SteadyClock::now().time_since_epoch()));
}

}  // namespace tutti
