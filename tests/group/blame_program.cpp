// The program that blame_test starts as ranks: one rank misbehaves, the others print whom their calls blame.
// Prints "blames <peer>: <message>".
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/rank_output.hpp"
#include "tests/support/rank_signals.hpp"
#include "tutti/tutti.hpp"

using namespace std::chrono_literals;
using tutti::CommGroup;
using tutti::test::print;
using tutti::test::RankSignals;

namespace {

void report(const std::function<void()>& body) {
  const auto error = tutti::test::error_of(body);
  print(error ? "blames " + std::to_string(error->peer()) + ": " + error->what() : "blames nobody");
}

void add_up(const CommGroup& group) {
  std::vector<int> values(1000, 1);
  group.allreduce(std::span(values));
}

[[noreturn]] void add_up_for_ever(const CommGroup& group) {
  for (;;) add_up(group);
}

// The first call of all ranks of `group`, before `leaver` ends. Its failure reaches a survivor only after
// this call: a failed group fails all its pending calls.
void begin(const CommGroup& group, int leaver) {
  const CommGroup survivors = group.split(group.rank() == leaver ? 1 : 0);
  add_up(group);
  if (group.rank() != leaver) survivors.barrier();
}

// The last rank of a subgroup leaves; ranks of the group and of the world differ by one.
int leave_subgroup(bool leaves_world) {
  CommGroup world = tutti::init();
  const RankSignals signals(world);
  const int reporters = world.size() - 2;
  std::vector<int> members;
  for (int rank = 1; rank < world.size(); ++rank) members.push_back(rank);
  bool has_reported = false;
  if (world.rank() > 0) {
    CommGroup group = world.create(members);
    begin(group, group.size() - 1);
    if (world.rank() == world.size() - 1) {
      group = {};
      if (leaves_world) world = {};
    } else {
      report([&] { add_up_for_ever(group); });
      report([&] { add_up_for_ever(group); });
      signals.tell_others();
      has_reported = true;
    }
  }
  signals.wait_for(reporters -
                   (has_reported ? 1 : 0));  // all stay, so that the others can hear of each other
  return 0;
}

int leave_world() {
  CommGroup world = tutti::init();
  const RankSignals signals(world);
  const int reporters = world.size() - 1;
  begin(world, world.size() - 2);
  if (world.rank() == world.size() - 2) {
    world = {};
    signals.wait_for(reporters);
  } else {
    report([&] { add_up_for_ever(world); });
    signals.tell_others();
    signals.wait_for(reporters - 1);
  }
  return 0;
}

// Ends with the job: nobody else wakes it.
int freeze(int victim) {
  const CommGroup world = tutti::init();
  const CommGroup others = world.split(world.rank() == victim ? 1 : 0);
  add_up(world);
  if (world.rank() == victim) ::raise(SIGSTOP);
  report([&] { add_up(world); });
  report([&] { add_up(others); });
  return world.rank() == victim ? 0 : 3;
}

// Rank 0 stops, so that no control message passes. Then rank 2 aborts the world, or a group without rank 0.
int abort_beside_frozen_root(bool in_world) {
  const CommGroup world = tutti::init();
  const int pid = ::getpid();
  std::vector<int> pids(static_cast<std::size_t>(world.size()));
  world.allgather(std::span(&pid, 1), std::span(pids));
  std::vector<int> members;
  for (int rank = 1; rank < world.size(); ++rank) members.push_back(rank);
  const CommGroup group = world.rank() == 0 || in_world ? world : world.create(members);
  add_up(world);
  if (world.rank() == 0) ::raise(SIGSTOP);
  if (!in_world) add_up(group);
  if (world.rank() == 2) {
    std::this_thread::sleep_for(300ms);  // the others wait by now
    group.abort("enough");
  }
  report([&] { add_up_for_ever(group); });
  if (world.rank() != 2) return 0;
  // The job ends with this rank, once the others have reported.
  for (const int other : {pids[1], pids[3]}) {
    while (::kill(other, 0) == 0) std::this_thread::sleep_for(1ms);
  }
  return 3;
}

// The victim freezes; the next rank waits for its message, and the one after that for one of the next rank.
// The deadline of the latter comes first.
int freeze_sender(int victim) {
  const CommGroup world = tutti::init();
  const int place = (world.rank() + world.size() - victim) % world.size();
  add_up(world);
  if (place == 0) ::raise(SIGSTOP);
  std::vector<int> values(10);
  // Later than the rank behind it, whose deadline so comes first.
  if (place == 1) std::this_thread::sleep_for(500ms);
  if (place <= 2)
    report([&] { world.recv(std::span(values), (world.rank() + world.size() - 1) % world.size()); });
  report([&] { add_up(world); });
  return place == 0 ? 0 : 3;
}

// Rank 2 freezes before the second of three allreduces, which the others submit at different times.
int freeze_behind() {
  const CommGroup world = tutti::init();
  add_up(world);
  if (world.rank() == 2) ::raise(SIGSTOP);
  std::vector<int> one(1000), two(1000);
  tutti::Work first = world.iallreduce(std::span(one));
  if (world.rank() != 0) report([&] { world.allreduce(std::span(two)); });
  report([&] { first.wait(); });
  return world.rank() == 2 ? 0 : 3;
}

// The other rank never sends.
int receive_in_vain() {
  const CommGroup world = tutti::init();
  const RankSignals signals(world);
  add_up(world);
  std::vector<int> values(10);
  if (world.rank() == 0) {
    report([&] { world.recv(std::span(values), 2); });
    signals.tell_others();
  } else {
    signals.wait_for(1);
  }
  return 0;
}

// Leaves by an orderly exit of the process, with the world open.
int leave_by_exit() {
  static CommGroup world = tutti::init();
  const RankSignals signals(world);
  begin(world, 1);
  if (world.rank() == 1) std::exit(0);
  report([&] { add_up_for_ever(world); });
  signals.tell_others();
  signals.wait_for(world.size() - 2);
  return 0;
}

// A rank that gives up its second world before the others have met it.
int second_start() {
  const CommGroup world = tutti::init();
  add_up(world);
  if (world.rank() == 1) ::setenv("TUTTI_TRACE", "/nowhere/at/all", 1);
  report([&] { add_up(tutti::init()); });
  add_up(world);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  RankSignals::block();
  const std::map<std::string, std::function<int()>> behaviours = {
      {"leave_group", [] { return leave_subgroup(false); }},
      {"leave_group_and_world", [] { return leave_subgroup(true); }},
      {"leave_world", leave_world},
      {"freeze0", [] { return freeze(0); }},
      {"freeze2", [] { return freeze(2); }},
      {"abort_group", [] { return abort_beside_frozen_root(false); }},
      {"abort_world", [] { return abort_beside_frozen_root(true); }},
      {"freeze_sender0", [] { return freeze_sender(0); }},
      {"freeze_sender2", [] { return freeze_sender(2); }},
      {"freeze_behind", freeze_behind},
      {"receive", receive_in_vain},
      {"exit", leave_by_exit},
      {"second_start", second_start},
  };
  const auto found = behaviours.find(argc > 1 ? argv[1] : "");
  return found == behaviours.end() ? 99 : found->second();
}
