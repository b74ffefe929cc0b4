// How long a group takes to go on without a killed rank: `shrinking [RANKS] [TIMES]` (64, 4). Prints, for each kill,
// the time from the kill to the last error, from there to the last return from shrink(), and from there to the last
// return from the new group's first allreduce, for which ranks that return early wait. Rank 0 dies first.
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <string>
#include <thread>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kMostTimes = 32;

// Shared by all processes. Times are counted from one clock of the machine.
struct Timings {
  struct Kill {
    std::atomic<Clock::rep> last_error{0}, last_return{0}, last_result{0};
    std::atomic<int> returned{0}, ended{0};
  };
  Kill kills[kMostTimes];
  std::atomic<int> ready{0};
};

void raise_to(std::atomic<Clock::rep>& latest, Clock::rep time) {
  Clock::rep seen = latest.load();
  while (seen < time && !latest.compare_exchange_weak(seen, time)) {
  }
}

int run_rank(Timings& timings, const std::string& id, int rank, int size, int times) {
  tutti::InitOptions options;
  options.unique_id = id;
  options.rank = rank;
  options.size = size;
  tutti::CommGroup group = tutti::init(options);
  std::vector<int> data(1000, 1);
  group.allreduce(std::span(data));
  ++timings.ready;
  for (int i = 0; i < times; ++i) {
    try {
      for (;;) group.allreduce(std::span(data));
    } catch (const tutti::Error&) {
      raise_to(timings.kills[i].last_error, Clock::now().time_since_epoch().count());
    }
    group = group.shrink();
    Timings::Kill& kill = timings.kills[i];
    raise_to(kill.last_return, Clock::now().time_since_epoch().count());
    ++kill.returned;
    while (kill.returned < size - 1 - i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    group.allreduce(std::span(data));
    raise_to(kill.last_result, Clock::now().time_since_epoch().count());
    ++kill.ended;
  }
  return 0;
}

double milliseconds(Clock::rep from, Clock::rep to) {
  return std::chrono::duration<double, std::milli>(Clock::duration(to - from)).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int size = argc > 1 ? std::atoi(argv[1]) : 64;
  const int times = std::min(argc > 2 ? std::atoi(argv[2]) : 4, std::min(size - 1, kMostTimes));
  void* const memory =
      ::mmap(nullptr, sizeof(Timings), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  Timings& timings = *new (memory) Timings;
  const std::string id = tutti::make_unique_id();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) return run_rank(timings, id, rank, size, times);
    ranks.push_back(pid);
  }
  while (timings.ready < size) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  std::printf("%8s %14s %14s %14s\n", "ranks", "error ms", "shrink ms", "allreduce ms");
  for (int i = 0; i < times; ++i) {
    const Clock::rep killed = Clock::now().time_since_epoch().count();
    ::kill(ranks[static_cast<std::size_t>(i)], SIGKILL);
    Timings::Kill& kill = timings.kills[i];
    while (kill.ended < size - 1 - i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    std::printf("%8d %14.1f %14.1f %14.1f\n", size - 1 - i, milliseconds(killed, kill.last_error),
                milliseconds(kill.last_error, kill.last_return),
                milliseconds(kill.last_return, kill.last_result));
  }
  for (const pid_t rank : ranks) ::waitpid(rank, nullptr, 0);
  return 0;
}
