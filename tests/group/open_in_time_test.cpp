// Opening a transport within a deadline: what the library says, or that it was too slow.
#include <atomic>
#include <future>
#include <memory>
#include <thread>

#include "runtime/group/open_in_time.hpp"
#include "tests/support/catch.hpp"

using namespace tutti;
using namespace std::chrono_literals;
using Catch::Matchers::Contains;

TEST_CASE("what the library says in time is what the caller gets") {
  const auto made = open_in_time(
      []() -> Result<std::unique_ptr<Transport>> { return unsupported("no device"); }, Clock::now() + 60s);
  CHECK(made.status().code() == StatusCode::unsupported);
  CHECK(made.status().message() == "no device");
}

TEST_CASE("a library that takes longer is not waited for, and lets go of all it has when it is done") {
  const auto end = std::make_shared<std::promise<void>>();
  const std::shared_future<void> is_released = end->get_future().share();
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = held;
  const auto made = open_in_time(
      [is_released, held = std::move(held)]() -> Result<std::unique_ptr<Transport>> {
        is_released.wait();
        return unsupported("too late");
      },
      Clock::now() + 20ms);
  CHECK(made.status().code() == StatusCode::timeout);
  CHECK_THAT(made.status().message(), Contains("TUTTI_TIMEOUT"));
  CHECK_FALSE(watched.expired());
  end->set_value();
  while (!watched.expired()) std::this_thread::yield();
}
