// The clock of all deadlines. Knows no deadline.
#pragma once

#include <chrono>

#pragma GCC visibility push(default)
namespace tutti {

// Counts only time in which this process ran. A job can be stopped as a whole: SIGSTOP, a batch system's
// preemption, a frozen container. No peer was slow then, so such time must not count against one. A process
// cannot see that it is stopped. So waiting threads read this clock at least every 0.25 s. A gap of more than
// 0.5 s between two readings counts as 0.25 s. While no thread waits, the clock may stand still.
// Starts at one day, so that a default time_point lies in the past. Any thread; some 30 ns.
class RunningClock {  // names as std::chrono has them
 public:
  using duration = std::chrono::nanoseconds;                 // NOLINT(readability-identifier-naming)
  using rep = duration::rep;                                 // NOLINT(readability-identifier-naming)
  using period = duration::period;                           // NOLINT(readability-identifier-naming)
  using time_point = std::chrono::time_point<RunningClock>;  // NOLINT(readability-identifier-naming)
  static constexpr bool is_steady = true;                    // NOLINT(readability-identifier-naming)
  // A thread that waits for a deadline sleeps at most this long before it reads the clock again.
  static constexpr std::chrono::milliseconds kLongestSleep{250};
  static time_point now() noexcept;
};

}  // namespace tutti
#pragma GCC visibility pop
