// How ranks wait, as it follows from their number, their CPUs and TUTTI_WAIT.
#include "runtime/group/settings.hpp"

#include "tests/support/catch.hpp"

namespace tutti {
namespace {

WaitPolicy policy_of(const Environment& environment, int ranks, int cpus) {
  const Result<WorldSettings> settings = read_settings(environment);
  REQUIRE(settings);
  return settings->wait_policy(ranks, cpus, false);
}

TEST_CASE("only ranks with a CPU each back off before the first poll") {
  const WaitPolicy alone = policy_of({}, 2, 2), crowded = policy_of({}, 3, 2);
  CHECK_FALSE(alone.shares_cpus());
  CHECK(alone.pauses_per_ns >= 1.0 / 50);
  CHECK(alone.pauses_per_ns <= 1);
  CHECK(crowded.shares_cpus());
  CHECK(crowded.pauses_per_ns == 0);
  // Measured once.
  CHECK(policy_of({}, 2, 4).pauses_per_ns == alone.pauses_per_ns);
}

TEST_CASE("ranks that must yield do not back off first") {
  for (const char* mode : {"yield", "sleep"}) {
    CAPTURE(mode);
    CHECK(policy_of({{"TUTTI_WAIT", mode}}, 2, 2).pauses_per_ns == 0);
  }
}

TEST_CASE("ranks with a CPU each watch whether they share one, and give way now and then") {
  const WaitPolicy alone = policy_of({}, 2, 2), crowded = policy_of({}, 3, 2);
  CHECK(alone.watches_cpus);
  CHECK(alone.polls_per_yield < alone.spin_polls);
  // These give way at every poll.
  CHECK_FALSE(crowded.watches_cpus);
  // A number of polls that somebody asked for has no yields in between.
  CHECK(policy_of({{"TUTTI_SPIN", "5000"}}, 2, 2).polls_per_yield > 5000);
  for (const char* mode : {"spin", "yield", "sleep"}) {
    CAPTURE(mode);
    CHECK_FALSE(policy_of({{"TUTTI_WAIT", mode}}, 2, 2).watches_cpus);
    CHECK(policy_of({{"TUTTI_WAIT", mode}}, 2, 2).polls_per_yield == ~0U);
  }
}

}  // namespace
}  // namespace tutti
