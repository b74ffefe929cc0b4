// Ranks that the system gives little: right results, at most one line about it, and nothing used or changed
// that was not asked for. Knows the group layer's promises only; ranks are processes of limits_program.
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "tests/group/job.hpp"
#include "tests/support/catch.hpp"

using namespace tutti::test;
using Catch::Matchers::Contains;
using Words = std::vector<std::string>;

namespace {

constexpr int kRanks = 3;

// `prefix` is a command that starts the rest in other circumstances; `variables` hold for every rank.
Outcome ranks(Words words, Words variables = {}, Words prefix = {}) {
  prefix.insert(prefix.end(), {TUTTI_RUN, "-n", std::to_string(kRanks), "--grace", "10", "env"});
  prefix.insert(prefix.end(), variables.begin(), variables.end());
  prefix.push_back(LIMITS_PROGRAM);
  prefix.insert(prefix.end(), words.begin(), words.end());
  return run(std::move(prefix));
}

// On control blocks and, where those are off, by messages.
void check_right(const Words& words, const Words& prefix = {}) {
  for (const char* blocks : {"TUTTI_CONTROL_BLOCKS=on", "TUTTI_CONTROL_BLOCKS=off"}) {
    const Outcome outcome = ranks(words, {blocks}, prefix);
    INFO(blocks << "\n" << outcome.out << outcome.err);
    CHECK(outcome.status == 0);
    CHECK_FALSE(outcome.is_late);
    CHECK(count(outcome.out, "fine") == kRanks);
    CHECK(count(outcome.err, "\n") <= 1);
  }
}

bool has_single_copy() {
  std::uint64_t from = 1, to = 0;
  const iovec local{&to, sizeof to}, remote{&from, sizeof from};
  return ::process_vm_readv(::getpid(), &local, 1, &remote, 1, 0) == sizeof to;
}

// A command that starts what follows in a mount namespace of its own, after `script`.
Words mounted(const std::string& script) {
  return {"unshare", "--mount", "sh", "-ec", script + "; exec \"$0\" \"$@\""};
}

bool works(Words prefix) {
  prefix.insert(prefix.end(), {"test", "-x", LIMITS_PROGRAM});
  return run(std::move(prefix)).status == 0;
}

}  // namespace

TEST_CASE("single copy refused to all ranks, to one rank, and in the midst of a job") {
  check_right({"refuse_single_copy", "call"});
  check_right({"refuse_single_copy@0", "call"});
  check_right({"refuse_single_copy@2", "call"});
  check_right({"call", "refuse_single_copy@1", "call"});
  check_right({"call", "refuse_single_copy", "call"});
}

TEST_CASE("the calls of these tests read through the kernel, where it lets them") {
  const Outcome outcome = ranks({"call", "deadly_single_copy@1", "call"}, {"TUTTI_CONTROL_BLOCKS=off"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == (has_single_copy() ? 128 + SIGSYS : 0));
  // On control blocks only what those do not carry does.
  CHECK(ranks({"call", "deadly_single_copy@1", "call"}).status == outcome.status);
}

TEST_CASE("single copy that was asked for is done without where it is refused") {
  check_right({"refuse_single_copy@1", "call"}, {"env", "TUTTI_SINGLE_COPY=on"});
}

TEST_CASE("one CPU and little locked memory, for all ranks or for one") {
  check_right({"one_cpu", "call"});
  check_right({"one_cpu@1", "call"});
  check_right({"little_locked_memory", "call"});
  check_right({"little_locked_memory@2", "call"});
}

TEST_CASE("64 KiB of /dev/shm, or none") {
  const Words little = mounted("mount -t tmpfs -o size=64k none /dev/shm");
  // A rank may need what is left: tmpfs has neither shm nor anything else but these.
  const Words none = mounted(
      "mount -t tmpfs none /dev; mknod -m 666 /dev/null c 1 3; mknod -m 666 /dev/zero c 1 5; "
      "mknod -m 666 /dev/random c 1 8; mknod -m 666 /dev/urandom c 1 9; test ! -e /dev/shm");
  for (const Words& prefix : {little, none}) {
    if (!works(prefix)) {
      WARN("left out: " << prefix.back() << " is not permitted here");
      continue;
    }
    check_right({"call"}, prefix);
  }
}

TEST_CASE("caches of any size") {
  const std::string made_up = "TUTTI_TOPOLOGY=synthetic:pack:1 ";
  if (ranks({"join"}, {made_up + "pu:4"}).status != 0) {
    WARN("left out: this build has no hwloc");
    return;
  }
  for (const char* caches : {"l3:1(size=500000) l2:4(size=60000) l1:1(size=5000) core:1 pu:1",
                             "l3:1(size=900000000) l2:4(size=9000000) l1:1(size=900000) core:1 pu:1", "pu:4"})
    check_right({"call"}, {"env", made_up + caches});
}

TEST_CASE("ranks of an ordinary user") {
  const Words nobody = {"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"};
  if (!works(nobody)) {
    WARN("left out: setpriv is not permitted here, or nobody cannot reach " << LIMITS_PROGRAM);
    return;
  }
  check_right({"call"}, nobody);
  // A process that has changed users can no longer be inspected by others of the same user.
  check_right({"another_user", "call"});
}

TEST_CASE("a rank of another user never meets the others, and says whom it missed") {
  if (::geteuid() != 0) {
    WARN("left out: only root can become another user");
    return;
  }
  const Outcome outcome = ranks({"another_user@1", "join"}, {"TUTTI_TIMEOUT=1s"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 4);
  CHECK(count(outcome.out, "fine") == 0);
  CHECK_THAT(outcome.out, Contains("did not arrive within 1 s"));
}

TEST_CASE("a thread that cannot be started is an error of tutti that names the limit") {
  if (::geteuid() != 0) {
    WARN("left out: only root can become a user of no other process");
    return;
  }
  const Outcome outcome = ranks({"no_thread", "join"}, {"TUTTI_TIMEOUT=1s"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 4);
  CHECK_THAT(outcome.out,
             Contains("cannot start the thread 'tutti-control'") && Contains("ulimit -u, here 1"));
}

TEST_CASE("ranks with nothing to do use no CPU time and have the affinity that they came with") {
  const Outcome outcome =
      ranks({"one_cpu@1", "note_affinity", "call", "same_affinity", "idle", "same_affinity"});
  INFO(outcome.out << outcome.err);
  CHECK(outcome.status == 0);
  CHECK(count(outcome.out, "fine") == kRanks);
  const std::string said = "used ";
  int reports = 0;
  for (std::size_t at = outcome.out.find(said); at != std::string::npos;
       at = outcome.out.find(said, at + 1)) {
    ++reports;
    // 0.05 s in 30 s, so 5 ms in these 3 s.
    CHECK(std::atol(outcome.out.c_str() + at + said.size()) <= 5000);
  }
  CHECK(reports == kRanks);
}
