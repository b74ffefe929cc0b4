// The clock of deadlines leaves out the time in which the process was stopped.
#include "runtime/base/running_clock.hpp"

#include <thread>
#include <vector>

#include "tests/support/catch.hpp"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::nanoseconds;
using std::chrono::seconds;

TEST_CASE("the clock counts the time in which threads wait") {
  RunTimeCounter counter(seconds(10));
  nanoseconds now = seconds(1000);
  const nanoseconds begun = counter.read(now);
  CHECK(begun == seconds(10));
  for (int i = 1; i <= 20; ++i) {
    now += milliseconds(100);
    CHECK(counter.read(now) == begun + i * milliseconds(100));
  }
}

TEST_CASE("of a stop the clock counts one sleep") {
  RunTimeCounter counter(seconds(10));
  nanoseconds now = seconds(1000);
  const nanoseconds begun = counter.read(now);
  now += seconds(60);
  CHECK(counter.read(now) == begun + Clock::kLongestSleep);
  now += milliseconds(300);
  CHECK(counter.read(now) == begun + Clock::kLongestSleep + milliseconds(300));
}

TEST_CASE("the clock starts at its start, whatever the other clock shows") {
  const nanoseconds now = GENERATE(seconds(0), seconds(9), seconds(11), seconds(1000000));
  RunTimeCounter counter(seconds(10));
  CHECK(counter.read(now) == seconds(10));
  CHECK(counter.read(now + milliseconds(100)) == seconds(10) + milliseconds(100));
  CHECK(counter.read(now + seconds(60)) == seconds(10) + milliseconds(100) + Clock::kLongestSleep);
}

TEST_CASE("the clock does not go back") {
  RunTimeCounter counter(seconds(10));
  nanoseconds now = seconds(1000);
  const nanoseconds begun = counter.read(now);
  CHECK(counter.read(now + seconds(60)) == begun + Clock::kLongestSleep);
  // Read before the stop, and counted only now.
  CHECK(counter.read(now + milliseconds(10)) == begun + Clock::kLongestSleep);
}

TEST_CASE("threads that see one stop leave it out once") {
  constexpr int kThreads = 4, kStops = 200;
  RunTimeCounter counter(seconds(10));
  const nanoseconds begun = counter.read(seconds(1000));
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&] {
      for (int i = 1; i <= kStops; ++i) counter.read(seconds(1000) + i * seconds(10));
    });
  }
  for (std::thread& thread : threads) thread.join();
  const nanoseconds ended = counter.read(seconds(1000) + kStops * seconds(10));
  // Threads that lag behind skip stops that others have left out, and none counts as a whole.
  CHECK(ended > begun);
  CHECK(ended <= begun + kStops * milliseconds(500));
}

TEST_CASE("a default time lies in the past, and the last time is never reached") {
  CHECK(Clock::now() > Clock::time_point() + std::chrono::hours(1));
  CHECK(sleep_until_reading({}) == Clock::duration::zero());
  CHECK(sleep_until_reading(Clock::time_point::max()) == Clock::kLongestSleep);
}

TEST_CASE("a wait for a condition ends with the condition or at its time") {
  std::mutex mutex;
  std::condition_variable changed;
  std::unique_lock lock(mutex);
  CHECK_FALSE(wait_for(changed, lock, milliseconds(1), [] { return false; }));
  bool is_done = false;
  std::thread other([&] {
    const std::lock_guard guard(mutex);
    is_done = true;
    changed.notify_all();
  });
  CHECK(wait_until(changed, lock, Clock::time_point::max(), [&] { return is_done; }));
  lock.unlock();
  other.join();
}

}  // namespace
}  // namespace tutti
