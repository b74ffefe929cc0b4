// The rank that others blame when one leaves, freezes or cannot start: the right one, by its number in the
// group.
#include <algorithm>
#include <sstream>

#include "tests/group/job.hpp"
#include "tests/support/catch.hpp"

using namespace tutti::test;
using Catch::Matchers::Contains;

namespace {

Outcome ranks(int count, const std::string& behaviour, std::vector<std::string> variables = {}) {
  std::vector<std::string> words{TUTTI_RUN, "-n", std::to_string(count), "--grace", "0.5", "env"};
  words.insert(words.end(), variables.begin(), variables.end());
  words.insert(words.end(), {BLAME_PROGRAM, behaviour});
  return run(std::move(words));
}

std::vector<std::string> blames(const std::string& out) {
  std::vector<std::string> found;
  std::istringstream stream(out);
  for (std::string line; std::getline(stream, line);) {
    if (const std::size_t at = line.find("blames "); at != std::string::npos)
      found.push_back(line.substr(at));
  }
  return found;
}

}  // namespace

TEST_CASE("who leaves a subgroup is blamed by the number that it has there") {
  const std::string behaviour = GENERATE("leave_group", "leave_group_and_world");
  const Outcome outcome = ranks(4, behaviour);
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  const auto found = blames(outcome.out);
  REQUIRE(found.size() == 4);
  for (const std::string& blame : found) CHECK_THAT(blame, Contains("blames 2: rank 2 has left the"));
}

TEST_CASE("a rank that leaves is blamed by all, not those that fail because of it") {
  const Outcome outcome = ranks(5, "leave_world");
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  const auto found = blames(outcome.out);
  REQUIRE(found.size() == 4);
  // Its group ends before its world; the others may see either first.
  for (const std::string& blame : found) CHECK_THAT(blame, Contains("blames 3: rank 3 has left the"));
}

TEST_CASE("who aborts is named with the reason although rank 0 is frozen") {
  const bool in_world = GENERATE(true, false);
  // Long before any deadline: nobody says so but the rank itself.
  const Outcome outcome = ranks(4, in_world ? "abort_world" : "abort_group", {"TUTTI_TIMEOUT=100s"});
  INFO(outcome.out << outcome.err);
  const std::string rank = in_world ? "2" : "1";
  const auto found = blames(outcome.out);
  CHECK_FALSE(outcome.is_late);
  REQUIRE(found.size() == 3);
  for (const std::string& blame : found)
    CHECK_THAT(blame, Contains("blames " + rank + ": rank " + rank + " aborted the group: enough"));
}

TEST_CASE("a frozen rank is blamed, rank 0 too, and not those that nobody could ask because of it") {
  const int victim = GENERATE(0, 2);
  const Outcome outcome = ranks(4, "freeze" + std::to_string(victim), {"TUTTI_TIMEOUT=2s"});
  INFO(outcome.out << outcome.err);
  const auto found = blames(outcome.out);
  const std::string wanted = "blames " + std::to_string(victim) + ": ";
  CHECK(std::count_if(found.begin(), found.end(), [&](const auto& b) { return b.starts_with(wanted); }) >= 1);
  CHECK(std::all_of(found.begin(), found.end(),
                    [&](const auto& b) { return b.starts_with(wanted) || b == "blames nobody"; }));
  CHECK_THAT(outcome.out, Contains("rank " + std::to_string(victim) + " (pid ") &&
                              Contains("is frozen: stopped by signal 19 (SIGSTOP)"));
}

TEST_CASE("a frozen rank is blamed, not those that wait for it in turn or have merely made fewer calls") {
  const std::string behaviour = GENERATE("freeze_sender0", "freeze_sender2", "freeze_behind");
  const std::string victim = behaviour == "freeze_sender0" ? "0" : "2";
  const Outcome outcome = ranks(4, behaviour, {"TUTTI_TIMEOUT=2s"});
  INFO(outcome.out << outcome.err);
  const auto found = blames(outcome.out);
  CHECK(!found.empty());
  for (const std::string& blame : found) {
    CHECK_THAT(blame, Contains("blames " + victim + ": "));
    CHECK_THAT(blame, Contains("rank " + victim + " (pid ") && Contains("is frozen: stopped by signal 19"));
  }
}

TEST_CASE("a receive that nobody sends for names the rank that it waits for") {
  const Outcome outcome = ranks(3, "receive", {"TUTTI_TIMEOUT=3s"});
  INFO(outcome.out << outcome.err);
  const auto found = blames(outcome.out);
  REQUIRE(found.size() == 1);
  CHECK_THAT(found[0], Contains("blames 2: "));
}

TEST_CASE("a process that ends in peace leaves the world, and is not taken for dead") {
  const Outcome outcome = ranks(4, "exit");
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  const auto found = blames(outcome.out);
  REQUIRE(found.size() == 3);
  for (const std::string& blame : found) CHECK_THAT(blame, Contains("blames 1: rank 1 has left the"));
}

TEST_CASE("the others hear why a rank could not make its second world") {
  const Outcome outcome = ranks(3, "second_start", {"TUTTI_TIMEOUT=20s"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  const auto found = blames(outcome.out);
  REQUIRE(found.size() == 3);
  CHECK(std::count_if(found.begin(), found.end(), [](const auto& b) {
          return b.starts_with("blames 1: rank 1 has left the world: TUTTI_TRACE");
        }) == 2);
}
