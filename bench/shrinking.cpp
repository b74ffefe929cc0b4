// How long a group takes to go on without a killed rank: `shrinking [RANKS] [TIMES] [replace]` (64, 4). Prints, for
// each kill, the time from the kill to the last error, from there to the last return from shrink(), and from there to
// the last return from the new group's first allreduce, for which ranks that return early wait. Rank 0 dies first.
// With `replace`, a process that waits to join takes the dead rank's place by reconfigure().
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <string>
#include <string_view>
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
    std::atomic<bool> has_invitation{false};
    char invitation[4096];  // to the group that loses a rank; its last rank writes it
  };
  Kill kills[kMostTimes];
  std::atomic<int> ready{0};
};

struct Job {
  Timings& timings;
  std::string id;
  int size;
  int times;
  bool replaces;

  // Of the group that goes on after kill i.
  int size_after(int i) const { return replaces ? size : size - 1 - i; }
};

void raise_to(std::atomic<Clock::rep>& latest, Clock::rep time) {
  Clock::rep seen = latest.load();
  while (seen < time && !latest.compare_exchange_weak(seen, time)) {
  }
}

void wait_until(const std::atomic<int>& count, int expected) {
  while (count < expected) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void invite(Timings::Kill& kill, const tutti::CommGroup& group) {
  const std::string invitation = group.invitation();
  if (invitation.size() >= sizeof(kill.invitation)) std::abort();
  std::memcpy(kill.invitation, invitation.c_str(), invitation.size() + 1);
  kill.has_invitation = true;
}

// The first allreduce of the group that goes on after a kill.
void use_successor(const Job& job, int i, tutti::CommGroup& group) {
  Timings::Kill& kill = job.timings.kills[i];
  raise_to(kill.last_return, Clock::now().time_since_epoch().count());
  ++kill.returned;
  wait_until(kill.returned, job.size_after(i));
  std::vector<int> data(1000, 1);
  group.allreduce(std::span(data));
  raise_to(kill.last_result, Clock::now().time_since_epoch().count());
  if (job.replaces && i + 1 < job.times && group.rank() == group.size() - 1)
    invite(job.timings.kills[i + 1], group);
  ++kill.ended;
}

void lose_ranks(const Job& job, int first, tutti::CommGroup& group) {
  std::vector<int> data(1000, 1);
  for (int i = first; i < job.times; ++i) {
    try {
      for (;;) group.allreduce(std::span(data));
    } catch (const tutti::Error&) {
      raise_to(job.timings.kills[i].last_error, Clock::now().time_since_epoch().count());
    }
    group = job.replaces ? group.reconfigure(job.size) : group.shrink();
    use_successor(job, i, group);
  }
}

int run_rank(const Job& job, int rank) {
  tutti::InitOptions options;
  options.unique_id = job.id;
  options.rank = rank;
  options.size = job.size;
  tutti::CommGroup group = tutti::init(options);
  std::vector<int> data(1000, 1);
  group.allreduce(std::span(data));
  if (job.replaces && rank == job.size - 1) invite(job.timings.kills[0], group);
  ++job.timings.ready;
  lose_ranks(job, 0, group);
  return 0;
}

int run_joiner(const Job& job, int i) {
  tutti::CommGroup group = tutti::join(job.timings.kills[i].invitation);
  use_successor(job, i, group);
  lose_ranks(job, i + 1, group);
  return 0;
}

pid_t start(const auto& run) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(run());
  return pid;
}

// Starts the process that joins after kill i, and gives it time to arrive.
pid_t start_joiner(const Job& job, int i) {
  while (!job.timings.kills[i].has_invitation) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const pid_t pid = start([&] { return run_joiner(job, i); });
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  return pid;
}

double milliseconds(Clock::rep from, Clock::rep to) {
  return std::chrono::duration<double, std::milli>(Clock::duration(to - from)).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int size = argc > 1 ? std::atoi(argv[1]) : 64;
  const int times = std::min(argc > 2 ? std::atoi(argv[2]) : 4, std::min(size - 1, kMostTimes));
  const bool replaces = argc > 3 && std::string_view(argv[3]) == "replace";
  void* const memory =
      ::mmap(nullptr, sizeof(Timings), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return 1;
  Timings& timings = *new (memory) Timings;
  const Job job{timings, tutti::make_unique_id(), size, times, replaces};
  std::vector<pid_t> ranks;
  ranks.reserve(static_cast<std::size_t>(size) + static_cast<std::size_t>(times));
  for (int rank = 0; rank < size; ++rank) ranks.push_back(start([&] { return run_rank(job, rank); }));
  wait_until(timings.ready, size);
  std::printf("%8s %14s %14s %14s\n", "ranks", "error ms", replaces ? "reconfigure ms" : "shrink ms",
              "allreduce ms");
  for (int i = 0; i < times; ++i) {
    if (replaces) ranks.push_back(start_joiner(job, i));
    const Clock::rep killed = Clock::now().time_since_epoch().count();
    ::kill(ranks[static_cast<std::size_t>(i)], SIGKILL);
    Timings::Kill& kill = timings.kills[i];
    wait_until(kill.ended, job.size_after(i));
    std::printf("%8d %14.1f %14.1f %14.1f\n", job.size_after(i), milliseconds(killed, kill.last_error),
                milliseconds(kill.last_error, kill.last_return),
                milliseconds(kill.last_return, kill.last_result));
  }
  for (const pid_t rank : ranks) ::waitpid(rank, nullptr, 0);
  return 0;
}
