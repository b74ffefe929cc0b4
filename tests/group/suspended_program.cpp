// The ranks of suspended_test: each takes part in one phase of a job for as long as the test wants, and
// prints the errors of its calls. The test stops all ranks meanwhile.
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

using tutti::CommGroup;

namespace {

void print(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

// SIGUSR1: the phase begins. SIGUSR2: it ends.
void wait_for(int wanted, const sigset_t& told) {
  for (int signal = 0; signal != wanted;) {
    if (::sigwait(&told, &signal) != 0) std::abort();
  }
}

bool is_over(const sigset_t& told) {
  const timespec none{};
  return ::sigtimedwait(&told, nullptr, &none) == SIGUSR2;
}

void add_up(const CommGroup& group, std::size_t count) {
  std::vector<int> values(count, 1);
  group.allreduce(std::span(values));
  for (const int value : values) {
    if (value != group.size()) throw tutti::Error(tutti::StatusCode::internal, -1, "wrong sum");
  }
}

// The last rank goes on when it is told to.
void run(const std::string& phase, int rank, bool is_last, const sigset_t& told) {
  const auto begin = [&] {
    print("pid" + std::to_string(rank) + "=" + std::to_string(::getpid()) + ";");
    wait_for(SIGUSR1, told);
  };
  if (phase == "start") begin();
  if (phase == "start" && is_last) wait_for(SIGUSR2, told);
  const CommGroup world = tutti::init();
  add_up(world, 1000);
  if (phase == "start") return;
  begin();
  // Between calls no rank waits for another, inside of one all wait for the last.
  if (phase == "between" || (phase == "inside" && is_last)) wait_for(SIGUSR2, told);
  if (phase == "moving") {
    for (std::vector<int> word{0}; word[0] == 0;) {
      add_up(world, 1 << 20);
      word[0] = is_last && is_over(told) ? 1 : 0;
      world.broadcast(std::span(word), world.size() - 1);
    }
  }
  add_up(world, 1000);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) return 99;
  sigset_t told;
  sigemptyset(&told);
  for (const int signal : {SIGUSR1, SIGUSR2}) sigaddset(&told, signal);
  ::pthread_sigmask(SIG_BLOCK, &told, nullptr);  // before the library has threads
  const int rank = std::atoi(std::getenv("RANK")), size = std::atoi(std::getenv("WORLD_SIZE"));
  try {
    run(argv[1], rank, rank == size - 1, told);
  } catch (const tutti::Error& error) {
    print("caught peer " + std::to_string(error.peer()) + ": " + error.what());
    return 1;
  }
  return 0;
}
