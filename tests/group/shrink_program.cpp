// Forks the ranks of a job, kills some of them at random times, and lets the others go on by shrink().
//   shrink_program SIZE SURVIVORS SEED      exit status 0: every survivor ended in one group with right results
//   shrink_program SIZE repeat              shrinks sound groups again and again; no descriptor may be left
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/rank_output.hpp"
#include "tutti/tutti.hpp"

using namespace std::chrono_literals;
using tutti::CommGroup;
using tutti::test::print;

namespace {

CommGroup join(const std::string& id, int rank, int size) {
  tutti::InitOptions options;
  options.unique_id = id;
  options.rank = rank;
  options.size = size;
  options.timeout = 20s;
  return tutti::init(options);
}

// Against a serial sum over the members, whose numbers all ranks tell. Throws Error; false for a wrong result.
bool adds_up(const CommGroup& group, int number) {
  std::vector<int> members(static_cast<std::size_t>(group.size()));
  group.allgather(std::span(&number, 1), std::span(members));
  if (members[static_cast<std::size_t>(group.rank())] != number ||
      !std::is_sorted(members.begin(), members.end()))
    return false;
  for (const std::size_t count : {1, 1000, 100000}) {
    std::vector<int> data(count);
    std::iota(data.begin(), data.end(), number);
    group.allreduce(std::span(data));
    const int base = std::accumulate(members.begin(), members.end(), 0);
    for (std::size_t i = 0; i < count; ++i) {
      if (data[i] != base + group.size() * static_cast<int>(i)) return false;
    }
  }
  return true;
}

int survive(const std::string& id, int rank, int size, int survivors, int ready) {
  CommGroup group = join(id, rank, size);
  if (!adds_up(group, rank)) return 3;
  if (::write(ready, "r", 1) != 1) return 4;
  for (;;) {
    try {
      if (!adds_up(group, rank)) {
        print("wrong result on rank " + std::to_string(rank));
        return 3;
      }
      if (group.size() == survivors) break;
    } catch (const tutti::Error& error) {
      if (error.code() != tutti::StatusCode::peer_failed) {
        print("rank " + std::to_string(rank) + " caught " + error.what());
        return 5;
      }
      group = group.shrink();
    }
  }
  print("rank " + std::to_string(rank) + " ends in " + std::to_string(group.size()));
  return 0;
}

// Kills until so many are left: at random times, now and then two at once, so that the second dies while the others
// agree. The exit status of the whole job.
int kill_some(std::vector<pid_t> ranks, std::size_t survivors, int ready, unsigned seed) {
  std::mt19937 random(seed);
  char byte = 0;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (::read(ready, &byte, 1) != 1) return 4;
  }
  std::shuffle(ranks.begin(), ranks.end(), random);
  while (ranks.size() > survivors) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    ::kill(ranks.back(), SIGKILL);
    ::waitpid(ranks.back(), nullptr, 0);
    ranks.pop_back();
  }
  int worst = 0;
  for (const pid_t rank : ranks) {
    int status = 0;
    ::waitpid(rank, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return worst;
}

std::size_t count_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

std::size_t count_mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
}

int repeat(const std::string& id, int rank, int size) {
  CommGroup group = join(id, rank, size);
  std::size_t descriptors = 0, mappings = 0;
  for (int i = 0; i < 20; ++i) {
    if (!adds_up(group, rank)) return 3;
    group = group.shrink();
    group.barrier();  // all have closed the group before this one by now
    if (i == 4) {
      descriptors = count_descriptors();
      mappings = count_mappings();
    }
  }
  print("descriptors " + std::to_string(descriptors) + " " + std::to_string(count_descriptors()) +
        " mappings " + std::to_string(mappings) + " " + std::to_string(count_mappings()));
  const bool is_clean = count_descriptors() <= descriptors && count_mappings() <= mappings + 8;
  group.barrier();
  return is_clean ? 0 : 6;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int size = std::atoi(argv[1]);
  const bool repeats = argv[2] == std::string("repeat");
  const int survivors = repeats ? size : std::atoi(argv[2]);
  const std::string id = tutti::make_unique_id();
  int ready[2];
  if (::pipe(ready) != 0) return 2;
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = ::fork();
    if (pid != 0) {
      ranks.push_back(pid);
      continue;
    }
    try {
      return repeats ? repeat(id, rank, size) : survive(id, rank, size, survivors, ready[1]);
    } catch (const tutti::Error& error) {
      print("rank " + std::to_string(rank) + " threw " + error.what());
      return 7;
    }
  }
  if (repeats) {
    for (int rank = 0; rank < size; ++rank) {
      if (::write(ready[1], "r", 1) != 1) return 4;
    }
  }
  return kill_some(ranks, static_cast<std::size_t>(survivors), ready[0],
                   argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 0);
}
