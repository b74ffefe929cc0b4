// Worlds whose ranks are processes: how they join, what the others hear when one dies, differs, stays away or
// forks.
#include <algorithm>
#include <cstdlib>
#include <set>
#include <sstream>

#include "tests/group/job.hpp"
#include "tests/support/catch.hpp"

using namespace tutti::test;
using Catch::Matchers::Contains;

namespace {

// Ranks of the test program under `tutti run`; `variables` are put before it ("TUTTI_TIMEOUT=1s").
Outcome ranks(int count, const std::string& behaviour, std::vector<std::string> variables = {}) {
  std::vector<std::string> words{TUTTI_RUN, "-n", std::to_string(count), "--grace", "10", "env"};
  words.insert(words.end(), variables.begin(), variables.end());
  words.insert(words.end(), {GROUP_PROGRAM, behaviour});
  return run(std::move(words));
}

// The errors that the ranks caught, without the rank in front.
std::multiset<std::string> caught(const std::string& out) {
  std::multiset<std::string> errors;
  std::istringstream stream(out);
  for (std::string line; std::getline(stream, line);) {
    if (const std::size_t at = line.find("caught "); at != std::string::npos) errors.insert(line.substr(at));
  }
  return errors;
}

}  // namespace

TEST_CASE("when a rank dies all others hear the same cause, and groups without it go on") {
  for (const int victim : {2, 0}) {
    const Outcome outcome = ranks(4, "die" + std::to_string(victim));
    INFO(outcome.out << outcome.err);
    CHECK(outcome.status == 128 + SIGKILL);
    CHECK_FALSE(outcome.is_late);
    CHECK(count(outcome.err, "tutti run:") == 1);
    CHECK_THAT(outcome.err,
               Contains("rank " + std::to_string(victim)) && Contains("killed by signal 9 (Killed)"));
    const auto errors = caught(outcome.out);
    REQUIRE(errors.size() == 7);  // twice in the world by three ranks, once in the half of the dead rank
    const std::string expected =
        "caught peer failed peer " + std::to_string(victim) + ": rank " + std::to_string(victim) + " (pid ";
    CHECK(std::count_if(errors.begin(), errors.end(), [&](const std::string& e) {
            return e.starts_with(expected);
          }) == (victim == 0 ? 7 : 6));  // rank 2 has another number in its half
    // Those of the world tell its last call, of which the half has had none.
    CHECK(std::set<std::string>(errors.begin(), errors.end()).size() == 2);
    CHECK(count(outcome.out, "its last completed call was allreduce of 1000 i32, sum") == 6);
    for (const std::string& error : errors)
      CHECK_THAT(error, Contains("is gone: killed by signal 9 (SIGKILL)"));
    CHECK(count(outcome.out, "half goes on") == 2);
  }
}

TEST_CASE("different calls are an error on every rank that names ranks and calls") {
  const Outcome outcome = ranks(4, "differ");
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  const auto errors = caught(outcome.out);
  REQUIRE(errors.size() == 8);
  CHECK(std::set<std::string>(errors.begin(), errors.end()).size() == 1);
  CHECK_THAT(*errors.begin(), Contains("caught mismatch") &&
                                  Contains("ranks of one group made different calls") && Contains("rank 1") &&
                                  Contains("allreduce"));
}

TEST_CASE("different calls are found even if no message ever arrives") {
  const Outcome outcome = ranks(2, "cross");
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  const auto errors = caught(outcome.out);
  REQUIRE(errors.size() == 2);
  CHECK(*errors.begin() == *errors.rbegin());
  const std::string& text = *errors.begin();
  const std::size_t first = text.find("rank 0 called broadcast"),
                    second = text.find("rank 1 called broadcast");
  REQUIRE(first < second);
  REQUIRE(second != std::string::npos);
  CHECK_THAT(text.substr(first, second - first), Contains("f64") && Contains("root 1"));
  CHECK_THAT(text.substr(second), Contains("f64") && Contains("root 0"));
}

TEST_CASE("TUTTI_CHECK=group compares every call before it runs") {
  const Outcome good = ranks(3, "two_worlds", {"TUTTI_CHECK=group"});
  INFO(good.out << good.err);
  CHECK(good.status == 0);
  const Outcome outcome = ranks(4, "differ", {"TUTTI_CHECK=group"});
  INFO(outcome.out << outcome.err);
  const auto errors = caught(outcome.out);
  CHECK(std::count(errors.begin(), errors.end(),
                   "caught mismatch peer 1: ranks of one group made different calls: ranks 0, 2, 3 of 4 "
                   "called allreduce of "
                   "1000 f32, sum; rank 1 of 4 called allreduce of 998 f32, sum") +
            std::count(errors.begin(), errors.end(),
                       "caught mismatch peer 1: ranks of one group made different calls: rank 1 of 4 called "
                       "allreduce of "
                       "998 f32, sum; ranks 0, 2, 3 of 4 called allreduce of 1000 f32, sum") ==
        4);
  CHECK(count(outcome.out, "caught nothing") == 4);  // nothing ran, so the group goes on
}

TEST_CASE(
    "ranks that meet anew make groups in the world that they share, each with its own failure and deadline") {
  for (const char* transports : {"auto", "tcp"}) {
    const Outcome outcome = ranks(3, "share_world", {std::string("TUTTI_TRANSPORTS=") + transports});
    INFO(outcome.out << outcome.err);
    CHECK(outcome.status == 0);
    CHECK(count(outcome.out, "] shared") == 3);
    const auto errors = caught(outcome.out);
    CHECK(errors.count("caught aborted peer 0: rank 0 aborted the group: it is enough") == 3);
    CHECK(std::count_if(errors.begin(), errors.end(), [](const std::string& e) {
            return e.starts_with("caught timeout peer 2: ") && e.find("0.5 s") != std::string::npos;
          }) == 2);
    CHECK(errors.count("caught nothing") == 6);
  }
}

TEST_CASE("a rank that stays away is named at the deadline, and hears of it") {
  const Outcome outcome = ranks(3, "stay_away", {"TUTTI_TIMEOUT=3s"});
  INFO(outcome.out << outcome.err);
  CHECK_FALSE(outcome.is_late);
  const auto errors = caught(outcome.out);
  REQUIRE(errors.size() == 5);
  CHECK(std::set<std::string>(errors.begin(), errors.end()).size() == 1);
  CHECK_THAT(*errors.begin(),
             Contains("caught timeout peer 1: operation 3: allreduce of 1000 i32, sum") &&
                 Contains("within 3 s") && Contains("did not arrive: rank 1 (pid ") &&
                 Contains("is late: it is alive and waits in no call; its last completed call "
                          "was allreduce of 1000 i32, sum, operation 2"));
}

TEST_CASE("a long wait is reported once, with who is missing, and the operation goes on") {
  const Outcome outcome = ranks(2, "come_late", {"TUTTI_STALL_WARNING=200ms"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK(count(outcome.err, "not there: rank 1 (pid ") == 1);
}

TEST_CASE("a child of fork gets an error and disturbs nobody") {
  const Outcome outcome = ranks(3, "fork");
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK(count(outcome.out, "caught unsupported peer -1: this process was forked from a rank") == 9);
}

TEST_CASE("children of a process that has or had a world make worlds of their own") {
  const Outcome outcome = ranks(1, "fork_worlds", {"TUTTI_TIMEOUT=20s"});
  INFO(outcome.out << outcome.err);
  if (const char* transports = std::getenv("TUTTI_TRANSPORTS");
      transports != nullptr && transports == std::string_view("ucx")) {
    // UCX's threads are not in a child, which is told so at once.
    CHECK(outcome.status == 2);
    CHECK(count(outcome.out, "had UCX open") == 2);
    return;
  }
  CHECK(outcome.status == 0);
  CHECK(count(outcome.out, "fine") == 1);
}

TEST_CASE("owned memory stays after its world has ended, and a child of fork may drop it") {
  if (const char* transports = std::getenv("TUTTI_TRANSPORTS"); transports != nullptr) return;  // has no heap
  const Outcome outcome = ranks(2, "keep_memory");
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK(count(outcome.out, "fine") == 2);
}

TEST_CASE("several worlds in one process, one after the other and side by side") {
  const Outcome outcome = ranks(3, "two_worlds");
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK(count(outcome.out, "fine") == 3);
}

TEST_CASE("an aborted group fails on all its members and on nobody else") {
  const Outcome outcome = ranks(4, "abort");
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  const auto errors = caught(outcome.out);
  REQUIRE(errors.size() == 2);
  CHECK(*errors.begin() == "caught aborted peer 1: rank 1 aborted the group: enough");
  CHECK(*errors.begin() == *errors.rbegin());
}

TEST_CASE("ranks may leave in any order, without a word") {
  const Outcome outcome = ranks(4, "leave_early");
  CHECK(outcome.status == 0);
  CHECK(outcome.out.empty());
  CHECK(outcome.err.empty());
}

TEST_CASE("a rank that may make no shared memory is reached through the network, and that is said") {
  if (std::getenv("TUTTI_TRANSPORTS") != nullptr) return;  // nothing takes the place of what was asked for
  const Outcome outcome = ranks(3, "refuse_memfd");
  INFO(outcome.out << outcome.err);
  if (outcome.status == 77) return;
  CHECK(outcome.status == 0);
  CHECK(count(outcome.out, "fine") == 3);
  CHECK(count(outcome.err, "shared memory cannot be used everywhere, so tcp takes its place") == 1);
  CHECK_THAT(outcome.err, Contains("memfd_create") && Contains("rank 1"));
}

TEST_CASE("a limit on the size of files leaves the network, or is named where it was excluded") {
  if (std::getenv("TUTTI_TRANSPORTS") != nullptr) return;
  for (const bool is_excluded : {false, true}) {
    const std::string variables = is_excluded ? "TUTTI_TRANSPORTS=shm " : "";
    const Outcome outcome = run({TUTTI_RUN, "-n", "2", "--grace", "10", "sh", "-c",
                                 "trap '' TERM; ulimit -f 512; " + variables + "exec " GROUP_PROGRAM " use"});
    INFO(outcome.out << outcome.err);
    CHECK(outcome.status == (is_excluded ? 4 : 0));
    CHECK(count(outcome.out, is_excluded ? "caught resource exhausted" : "caught nothing") == 2);
    CHECK_THAT(is_excluded ? outcome.out : outcome.err, Contains("ulimit -f"));
  }
}

TEST_CASE("torchrun's variables make a world") {
  const Outcome outcome =
      ranks(3, "two_worlds",
            {"-u", "TUTTI_JOB_ID", "-u", "TUTTI_SECRET", "-u", "TUTTI_RANK", "MASTER_ADDR=127.0.0.1",
             "MASTER_PORT=29500", "TORCHELASTIC_RUN_ID=tutti-test-" + std::to_string(::getpid())});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK(count(outcome.out, "fine") == 3);
}

TEST_CASE("settings that differ are listed with ranks and values") {
  const Outcome outcome =
      run({TUTTI_RUN, "-n", "3", "--grace", "10", "sh", "-c",
           "if [ $RANK = 1 ]; then export TUTTI_ADJUST_ALLREDUCE=ring; fi; trap '' TERM; exec " GROUP_PROGRAM
           " join"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 4);
  const auto errors = caught(outcome.out);
  REQUIRE(errors.size() == 3);
  CHECK(*errors.begin() ==
        "caught invalid argument peer 1: TUTTI_ADJUST_ALLREDUCE must be equal on all ranks but is 'auto' on "
        "ranks 0, 2 of 3; "
        "'ring' on rank 1 of 3");
  CHECK(*errors.begin() == *errors.rbegin());
}

TEST_CASE("ranks that take the node for different machines are told what they see") {
  const Outcome outcome =
      run({TUTTI_RUN, "-n", "3", "--grace", "10", "sh", "-c",
           "if [ $RANK = 1 ]; then export TUTTI_TOPOLOGY='synthetic:l3:1(size=1000000) core:1 pu:1'; fi; "
           "trap '' TERM; exec " GROUP_PROGRAM " join"});
  INFO(outcome.out << outcome.err);
  if (outcome.out.find("hwloc") != std::string::npos) return;  // a build without it knows no other machine
  CHECK(outcome.status == 4);
  const auto errors = caught(outcome.out);
  REQUIRE(errors.size() == 3);
  CHECK(*errors.begin() == *errors.rbegin());
  CHECK_THAT(
      *errors.begin(),
      Contains("caught invalid argument peer 1: the table of caches (TUTTI_TOPOLOGY, else the machine's) "
               "must be equal on all ranks but is '") &&
          Contains("last level 1000000 for 1 cores, 1 of them' on rank 1 of 3") &&
          Contains("' on ranks 0, 2 of 3"));
}

TEST_CASE("a process without the secret is refused and the job goes on") {
  const Outcome outcome = run({TUTTI_RUN, "-n", "3", "sh", "-c",
                               "if [ $RANK = 1 ]; then TUTTI_SECRET=guess " GROUP_PROGRAM
                               " join; fi; exec " GROUP_PROGRAM " join"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK(count(outcome.out,
              "caught refused peer -1: this process has another secret than the job (TUTTI_SECRET)") == 1);
  CHECK(count(outcome.out, "caught nothing") == 3);
}

TEST_CASE("a broken variable is named before anything is tried") {
  const Outcome outcome = ranks(2, "join", {"TUTTI_TIMEOUT=soon"});
  CHECK(outcome.status == 4);
  CHECK_THAT(outcome.out, Contains("caught invalid argument") && Contains("TUTTI_TIMEOUT"));
}

TEST_CASE("a process that ends with a group open has left it") {
  for (int run = 0; run < 10; ++run) {
    const Outcome outcome = ranks(3, "end_without_closing");
    INFO(outcome.out << outcome.err);
    REQUIRE(outcome.status == 0);
    CHECK(count(outcome.out, "caught nothing") == 30);
  }
}

TEST_CASE("what was sent is received although the sender has ended") {
  for (const char* how : {"return", "exit", "destroy"}) {
    const Outcome outcome = ranks(2, std::string("send_and_") + how);
    INFO(how << ": " << outcome.out << outcome.err);
    CHECK(outcome.status == 0);
    CHECK(count(outcome.out, "received all") == 1);
  }
}
