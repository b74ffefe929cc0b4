// Time and memory of live groups: `groups [GROUPS] [RANKS]` (1000, 8). All ranks make groups of all, use each once with
// an allreduce of 4 bytes, and keep them. Memory is the proportional set size of all ranks together, in which a shared
// page counts once.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "tutti/tutti.hpp"

namespace {

using Clock = std::chrono::steady_clock;

// Of this process, in KiB.
double own_memory() {
  std::ifstream file("/proc/self/smaps_rollup");
  std::string word;
  while (file >> word) {
    double kib = 0;
    if (word == "Pss:" && file >> kib) return kib;
  }
  return 0;
}

double memory_of_all(tutti::CommGroup& world) {
  std::vector<double> kib{own_memory()};
  world.allreduce(std::span(kib));
  return kib[0];
}

int run_rank(const std::string& id, int rank, int size, int count) {
  tutti::InitOptions options;
  options.unique_id = id;
  options.rank = rank;
  options.size = size;
  tutti::CommGroup world = tutti::init(options);
  world.barrier();
  const double before = memory_of_all(world);
  std::vector<int> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), 0);
  std::vector<tutti::CommGroup> groups;
  bool is_right = true;
  const Clock::time_point begun = Clock::now();
  for (int i = 0; i < count; ++i) {
    groups.push_back(world.create(all));
    std::vector<int> one{1};
    groups.back().allreduce(std::span(one));
    is_right = is_right && one[0] == size;
  }
  const double micros = std::chrono::duration<double, std::micro>(Clock::now() - begun).count();
  const double after = memory_of_all(world);
  if (rank == 0) {
    std::printf("%8s %8s %14s %16s %22s\n", "ranks", "groups", "us each", "first MiB", "KiB each, by rank");
    std::printf("%8d %8d %14.1f %16.1f %22.2f%s\n", size, count, micros / count, before / 1024,
                (after - before) / count / size, is_right ? "" : "  WRONG RESULTS");
  }
  return is_right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const int count = std::max(1, argc > 1 ? std::atoi(argv[1]) : 1000);
  const int size = std::max(1, argc > 2 ? std::atoi(argv[2]) : 8);
  const std::string id = tutti::make_unique_id();
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) return run_rank(id, rank, size, count);
    ranks.push_back(pid);
  }
  bool is_right = true;
  for (const pid_t rank : ranks) {
    int status = 0;
    ::waitpid(rank, &status, 0);
    is_right = is_right && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return is_right ? 0 : 1;
}
