// The program that group_process_test starts as ranks: one behaviour per word on its command line.
// Prints what its calls threw as "caught <code> peer <peer>: <message>".
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/status.hpp"
#include "tests/support/call_filter.hpp"
#include "tests/support/rank_output.hpp"
#include "tests/support/rank_signals.hpp"
#include "topology/affinity.hpp"
#include "topology/topology.hpp"
#include "tutti/tutti.hpp"

using namespace std::chrono_literals;
using tutti::CommGroup;
using tutti::test::print;

namespace {

// Runs `body` and prints the error it throws; false if it threw none.
bool caught(const std::function<void()>& body) {
  const auto error = tutti::test::error_of(body);
  print(!error ? "caught nothing"
               : "caught " + std::string(tutti::to_string(error->code())) + " peer " +
                     std::to_string(error->peer()) + ": " + error->what());
  return error.has_value();
}

void add_up(const CommGroup& group) {
  std::vector<int> value(1000, group.rank());
  group.allreduce(std::span(value));
  const int expected = group.size() * (group.size() - 1) / 2;
  for (const int v : value) {
    if (v != expected) throw tutti::Error(tutti::StatusCode::internal, -1, "wrong sum " + std::to_string(v));
  }
}

void outlive_the_end() { ::signal(SIGTERM, SIG_IGN); }

int die(int victim) {
  outlive_the_end();
  const CommGroup world = tutti::init();
  const CommGroup half = world.split(world.rank() % 2);
  if (world.rank() == victim) {
    for (int i = 0; i < 5; ++i) add_up(world);
    // A child that outlives us must not keep the connection open.
    if (::fork() == 0) {
      ::sleep(20);
      ::_exit(0);
    }
    ::raise(SIGKILL);
  }
  caught([&] {
    for (;;) add_up(world);
  });
  caught([&] { world.barrier(); });  // the same cause again
  if (world.rank() % 2 == victim % 2) {
    caught([&] { add_up(half); });
  } else {
    for (int i = 0; i < 5; ++i) add_up(half);  // a group without the dead rank goes on
    print("half goes on");
  }
  return 0;
}

int call_differently() {
  const CommGroup world = tutti::init();
  std::vector<float> data(1000);
  const bool is_odd = world.rank() == 1;
  caught([&] {
    add_up(world);  // a group that fails meanwhile takes even this one along where it is not complete yet
    world.allreduce(data.data(), data.data(), is_odd ? 998 : 1000, tutti::Dtype::f32);
  });
  caught([&] { world.barrier(); });
  return 0;
}

// Both ranks wait for the other one's broadcast: no message ever arrives that could be found wrong.
int wait_for_each_other() {
  const CommGroup world = tutti::init();
  std::vector<double> data(16);
  caught([&] {
    add_up(world);
    world.broadcast(std::span(data), 1 - world.rank());
  });
  return 0;
}

// Rank 1 does not come before the calls of the others have failed.
int stay_away() {
  outlive_the_end();
  tutti::test::RankSignals::block();
  const CommGroup world = tutti::init();
  const tutti::test::RankSignals signals(world);
  add_up(world);
  if (world.rank() == 1) {
    signals.wait_for(world.size() - 1);
  } else {
    caught([&] { add_up(world); });
    signals.tell_others();
  }
  // The others' data of the operation may be at rank 1 before the news of its failure.
  caught([&] {
    add_up(world);
    add_up(world);
  });
  return 0;
}

int come_late() {
  const CommGroup world = tutti::init();
  add_up(world);
  // Late by more than the stall warning and by less than the timeout.
  if (world.rank() == 1) std::this_thread::sleep_for(1500ms);
  add_up(world);
  return 0;
}

// Static destructors run in the child, as in a careless program. Not under AddressSanitizer: its leak check
// counts memory of the parent's threads as lost, since those threads do not exist here.
[[noreturn]] void leave_child(int status) {
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
  ::_exit(status);
#endif
#endif
  std::exit(status);
}

int fork_child() {
  const CommGroup world = tutti::init();
  add_up(world);
  // Not complete before all ranks have forked.
  int sent = world.rank(), received = -1;
  const int next = (world.rank() + 1) % world.size();
  const tutti::Work work = world.irecv(&received, 1, tutti::Dtype::i32, tutti::kAnySource);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool threw =
        caught([&] { world.barrier(); }) && caught([&] { world.rank(); }) && caught([&] { work.wait(); });
    leave_child(threw ? 7 : 8);
  }
  for (int i = 0; i < 50; ++i) add_up(world);
  world.send(&sent, 1, tutti::Dtype::i32, next);
  work.wait();
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) return 1;
  for (int i = 0; i < 50; ++i) add_up(world);
  return 0;
}

// Joins as a rank of `id` and adds up; what a child of fork() returns as its status.
int work_as(const std::string& id, int rank, int size) {
  try {
    tutti::InitOptions options;
    options.unique_id = id;
    options.rank = rank;
    options.size = size;
    const CommGroup world = tutti::init(options);
    for (int i = 0; i < 3; ++i) add_up(world);
    return 0;
  } catch (const tutti::Error& error) {
    print(std::string("caught ") + error.what());
    return 1;
  }
}

bool have_succeeded(const std::vector<pid_t>& children) {
  bool is_right = true;
  for (const pid_t child : children) {
    int status = 0;
    ::waitpid(child, &status, 0);
    is_right = is_right && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return is_right;
}

// Children of a process that has worlds, or had, are processes of their own: they make worlds together, and
// so do their children.
int fork_worlds() {
  const auto fork_ranks = [](int size, const std::function<int(const std::string&, int)>& body) {
    const std::string id = tutti::make_unique_id();
    std::vector<pid_t> children;
    for (int rank = 0; rank < size; ++rank) {
      const pid_t child = ::fork();
      if (child == 0) leave_child(body(id, rank));
      children.push_back(child);
    }
    return have_succeeded(children);
  };
  const auto work = [](const std::string& id, int rank) { return work_as(id, rank, 2); };
  if (work_as(tutti::make_unique_id(), 0, 1) != 0 || !fork_ranks(2, work)) return 1;
  const CommGroup world = tutti::init();  // of one rank, and of the environment
  add_up(world);
  if (!fork_ranks(2, work)) return 2;
  const bool is_right = fork_ranks(2, [&](const std::string& id, int rank) {
    if (work_as(id, rank, 2) != 0) return 1;
    return fork_ranks(2, work) && fork_ranks(2, work) ? 0 : 2;
  });
  if (!is_right) return 3;
  add_up(world);
  print("fine");
  return 0;
}

// Memory that outlives its world, and references that a child drops.
int keep_memory() {
  std::shared_ptr<void> kept;
  {
    const CommGroup world = tutti::init();
    kept = tutti::alloc_owned(world, 1000 * sizeof(int));
    std::fill_n(static_cast<int*>(kept.get()), 1000, world.rank());
    const pid_t child = ::fork();
    if (child == 0) {
      kept.reset();
      leave_child(0);
    }
    if (!have_succeeded({child})) return 1;
    world.allreduce(std::span(static_cast<int*>(kept.get()), 1000));
  }
  const CommGroup world = tutti::init();
  world.allreduce(std::span(static_cast<int*>(kept.get()), 1000));
  const int ranks = world.size();
  const int expected = ranks * ranks * (ranks - 1) / 2;
  if (std::count(static_cast<int*>(kept.get()), static_cast<int*>(kept.get()) + 1000, expected) != 1000)
    return 2;
  print("fine");
  return 0;
}

int two_worlds() {
  for (int life = 0; life < 3; ++life) {
    const CommGroup first = tutti::init();
    const CommGroup second = tutti::init();
    for (int i = 0; i < 3; ++i) {
      add_up(first);
      add_up(second);
    }
  }
  print("fine");
  return 0;
}

int join() {
  if (caught([] { add_up(tutti::init()); })) return 4;
  return 0;
}

int abort_group() {
  const CommGroup world = tutti::init();
  const CommGroup pair = world.split(world.rank() / 2);
  if (world.rank() == 1) pair.abort("enough");
  if (world.rank() < 2) {
    caught([&] { add_up(pair); });
  } else {
    add_up(pair);
  }
  add_up(world);  // another group, not affected
  return 0;
}

int leave_early() {
  const CommGroup world = tutti::init();
  add_up(world);
  // One after the other, mostly; the order is not checked.
  if (world.rank() != 0) std::this_thread::sleep_for(100ms * world.rank());
  return 0;
}

// A group that is never closed.
CommGroup& open_for_ever() {
  static auto* const kWorld = new CommGroup(tutti::init());
  return *kWorld;
}

int end_without_closing() {
  const CommGroup& world = open_for_ever();
  for (int i = 0; i < 10; ++i) {
    if (caught([&] { world.barrier(); })) return 4;
  }
  return 0;
}

// Rank 0 sends to rank 1, which receives when rank 0 is no more.
int send_and_end(const std::string& how) {
  constexpr int kMessages = 12;  // so few are complete before anybody receives
  CommGroup world = how == "destroy" ? tutti::init() : open_for_ever();
  const int pid = ::getpid();
  std::vector<int> pids(static_cast<std::size_t>(world.size()));
  world.allgather(std::span(&pid, 1), std::span(pids));
  std::vector<int> message(50);
  world.broadcast(std::span(message), 0);  // the two are connected
  if (world.rank() == 0) {
    for (int i = 0; i < kMessages; ++i) {
      std::fill(message.begin(), message.end(), i);
      world.send(std::span(message), 1);
    }
    if (how == "exit") std::exit(0);
  } else if (world.rank() == 1) {
    while (::kill(pids[0], 0) == 0) std::this_thread::sleep_for(1ms);
    for (int i = 0; i < kMessages; ++i) {
      if (caught([&] { world.recv(std::span(message), 0); })) return 4;
      if (message != std::vector<int>(message.size(), i)) return 5;
    }
    print("received all");
  }
  return 0;
}

std::string own_cpus() { return tutti::cpu_list_text(tutti::affinity_of_this_thread()); }

int show_affinity() {
  const std::string before = own_cpus();
  if (caught([&] {
        const CommGroup world = tutti::init();
        const std::string after = own_cpus();
        const CommGroup second = tutti::init();
        add_up(second);
        print(std::to_string(world.rank()) + ": " + before + " " + after + " " + own_cpus());
      }))
    return 4;
  return 0;
}

// Rank 1 may make no shared memory. 77 where the system has no filters.
int refuse_memfd() {
  if (std::getenv("RANK") == std::string("1") &&
      !tutti::test::filter_call(SYS_memfd_create, tutti::test::CallFilter::refuse))
    return 77;
  const CommGroup world = tutti::init();
  const CommGroup others = world.split(world.rank() == 1 ? 1 : 0);
  for (int i = 0; i < 20; ++i) {
    add_up(world);
    add_up(others);
  }
  print("fine");
  return 0;
}

std::ptrdiff_t count_descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return std::distance(begin(open), end(open));
}

// As a framework makes groups: anew, of ranks that have a world in common.
CommGroup meet_anew(const CommGroup& through, std::chrono::milliseconds timeout) {
  tutti::InitOptions options;
  options.rank = through.rank();
  options.size = through.size();
  options.timeout = timeout;
  options.shares_world = true;
  options.allgather = [&](std::string_view mine) {
    constexpr std::size_t kBytes = 4096;
    std::string sent(mine), received(kBytes * static_cast<std::size_t>(through.size()), '\0');
    std::vector<std::uint64_t> lengths(static_cast<std::size_t>(through.size()));
    const std::uint64_t length = sent.size();
    sent.resize(kBytes);
    through.allgather(&length, lengths.data(), 1, tutti::Dtype::u64);
    through.allgather(sent.data(), received.data(), kBytes, tutti::Dtype::u8);
    std::vector<std::string> all;
    for (const std::uint64_t bytes : lengths) all.push_back(received.substr(kBytes * all.size(), bytes));
    return all;
  };
  return tutti::init(options);
}

// Rank 1 is in no group of `some`.
int share_world() {
  CommGroup world = tutti::init();
  const int rank = world.rank();
  const CommGroup pair = world.split(rank == 1 ? -1 : 0, -rank);
  add_up(world);
  if (rank != 1) add_up(pair);
  const std::ptrdiff_t before = count_descriptors();
  std::vector<CommGroup> groups, some;
  for (int i = 0; i < 50; ++i) {
    groups.push_back(meet_anew(world, 30s));
    if (rank != 1) some.push_back(meet_anew(pair, 30s));
  }
  for (const CommGroup& group : groups) add_up(group);
  for (const CommGroup& group : some) add_up(group);
  const bool is_shared = count_descriptors() == before;
  const bool is_ordered = rank == 1 || some[0].rank() == pair.rank();
  print(is_shared && is_ordered ? "shared" : "not shared");
  // Each fails alone, and by its own deadline.
  if (rank == 0) groups[0].abort("it is enough");
  caught([&] { groups[0].barrier(); });
  const CommGroup hasty = meet_anew(world, 500ms);
  if (rank != 2) caught([&] { hasty.barrier(); });
  caught([&] { add_up(world); });
  world = CommGroup();  // the others keep its connections
  caught([&] { add_up(groups[1]); });
  add_up(groups[1]);  // nobody leaves before
  return 0;
}

int use() {
  return caught([] { add_up(tutti::init()); }) ? 4 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<int()>> behaviours = {
      {"die2", [] { return die(2); }},
      {"die0", [] { return die(0); }},
      {"differ", call_differently},
      {"cross", wait_for_each_other},
      {"stay_away", stay_away},
      {"come_late", come_late},
      {"fork", fork_child},
      {"fork_worlds", fork_worlds},
      {"keep_memory", keep_memory},
      {"two_worlds", two_worlds},
      {"join", join},
      {"abort", abort_group},
      {"leave_early", leave_early},
      {"end_without_closing", end_without_closing},
      {"send_and_return", [] { return send_and_end("return"); }},
      {"send_and_exit", [] { return send_and_end("exit"); }},
      {"send_and_destroy", [] { return send_and_end("destroy"); }},
      {"affinity", show_affinity},
      {"refuse_memfd", refuse_memfd},
      {"share_world", share_world},
      {"use", use},
  };
  const auto found = behaviours.find(argc > 1 ? argv[1] : "");
  return found == behaviours.end() ? 99 : found->second();
}
