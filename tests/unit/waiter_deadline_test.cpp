// Deadlines that leave out the time in which their waiter was stopped.
#include "runtime/base/waiter_deadline.hpp"

#include "tests/support/catch.hpp"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST_CASE("a deadline counts the time in which its waiter polls") {
  WaiterDeadline::Clock::time_point now{};
  WaiterDeadline deadline(now + seconds(2), now);
  for (int i = 0; i < 19; ++i) {
    now += milliseconds(100);
    CHECK(deadline.note_poll(now) == milliseconds(0));
    CHECK_FALSE(deadline.has_passed(now));
  }
  now += milliseconds(100);
  CHECK(deadline.note_poll(now) == milliseconds(0));
  CHECK(deadline.has_passed(now));
}

TEST_CASE("a stop of the waiter moves its deadline by as much") {
  WaiterDeadline::Clock::time_point now{};
  WaiterDeadline deadline(now + seconds(2), now);
  now += seconds(60);
  CHECK(deadline.note_poll(now) == seconds(60));
  CHECK_FALSE(deadline.has_passed(now));
  CHECK(deadline.at() == WaiterDeadline::Clock::time_point{} + seconds(62));
  CHECK(deadline.note_poll(now) == seconds(0));
}

TEST_CASE("a deadline that never comes stays there") {
  WaiterDeadline::Clock::time_point now{};
  WaiterDeadline deadline(WaiterDeadline::Clock::time_point::max(), now);
  now += seconds(60);
  CHECK(deadline.note_poll(now) == seconds(60));
  CHECK(deadline.at() == WaiterDeadline::Clock::time_point::max());
}

}  // namespace
}  // namespace tutti
