// The program that group_process_test starts as ranks: one behaviour per word on its command line.
// Prints what its calls threw as "caught <code> peer <peer>: <message>".
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "runtime/base/status.hpp"
#include "topology/affinity.hpp"
#include "topology/topology.hpp"
#include "tutti/tutti.hpp"

using namespace std::chrono_literals;
using tutti::CommGroup;

namespace {

void print(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

// Runs `body` and prints the error it throws; false if it threw none.
bool caught(const std::function<void()>& body) {
  try {
    body();
  } catch (const tutti::Error& error) {
    print("caught " + std::string(tutti::to_string(error.code())) + " peer " + std::to_string(error.peer()) +
          ": " + error.what());
    return true;
  }
  print("caught nothing");
  return false;
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

int stay_away() {
  outlive_the_end();
  const CommGroup world = tutti::init();
  add_up(world);
  if (world.rank() == 1) {
    std::this_thread::sleep_for(2500ms);
  } else {
    caught([&] { add_up(world); });
  }
  caught([&] { add_up(world); });
  return 0;
}

int come_late() {
  const CommGroup world = tutti::init();
  add_up(world);
  if (world.rank() == 1) std::this_thread::sleep_for(1500ms);
  add_up(world);
  return 0;
}

// Rank 1 stays away until it is told to come; the others wait for it.
int await_signal() {
  sigset_t told;
  sigemptyset(&told);
  sigaddset(&told, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &told, nullptr);  // before the library has threads
  const CommGroup world = tutti::init();
  add_up(world);
  std::printf("pid%d=%d;\n", world.rank(), ::getpid());
  std::fflush(stdout);
  int signal = 0;
  if (world.rank() == 1 && ::sigwait(&told, &signal) != 0) return 98;
  add_up(world);
  return 0;
}

// Static destructors run in the child, as in a careless program; but not under AddressSanitizer, whose check
// for leaks takes what the parent's threads hold for lost: those threads do not exist here.
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
  const tutti::Work work = world.ibarrier();
  const pid_t child = ::fork();
  if (child == 0) {
    const bool threw =
        caught([&] { world.barrier(); }) && caught([&] { world.rank(); }) && caught([&] { work.wait(); });
    leave_child(threw ? 7 : 8);
  }
  for (int i = 0; i < 50; ++i) add_up(world);
  work.wait();
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) return 1;
  for (int i = 0; i < 50; ++i) add_up(world);
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
  if (world.rank() != 0) std::this_thread::sleep_for(100ms * world.rank());
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

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<int()>> behaviours = {
      {"die2", [] { return die(2); }}, {"die0", [] { return die(0); }},
      {"differ", call_differently},    {"cross", wait_for_each_other},
      {"stay_away", stay_away},        {"come_late", come_late},
      {"await_signal", await_signal},  {"fork", fork_child},
      {"two_worlds", two_worlds},      {"join", join},
      {"abort", abort_group},          {"leave_early", leave_early},
      {"affinity", show_affinity},
  };
  const auto found = behaviours.find(argc > 1 ? argv[1] : "");
  return found == behaviours.end() ? 99 : found->second();
}
