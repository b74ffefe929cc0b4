// Forks the ranks of a job, kills some of them at random times, and lets the others go on by shrink().
//   shrink_program SIZE SURVIVORS SEED      exit status 0: every survivor ended in one group with right results
//   shrink_program SIZE replace SEED        each killed rank is replaced by a new process
//   shrink_program SIZE repeat              shrinks sound groups again and again; no descriptor may be left
//   shrink_program SIZE rotate              rank 1 leaves, and a new process comes; again and again
//   shrink_program SIZE grow                grows by a process of this node, and replaces one by a process of another
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

constexpr int kNew = 100;  // numbers of new processes begin here
constexpr int kReplaced = 3;

// The numbers of all members. Throws Error.
std::vector<int> list_members(const CommGroup& group, int number) {
  std::vector<int> members(static_cast<std::size_t>(group.size()));
  group.allgather(std::span(&number, 1), std::span(members));
  return members;
}

// Against a serial sum over the numbers of the members. Throws Error; false for a wrong result.
bool adds_up(const CommGroup& group, int number) {
  const std::vector<int> members = list_members(group, number);
  if (members[static_cast<std::size_t>(group.rank())] != number) return false;
  // Survivors keep their order; new processes come in any.
  if (!std::is_sorted(members.begin(),
                      std::find_if(members.begin(), members.end(), [](int m) { return m >= kNew; })))
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

// The worst exit status.
int wait_for(const std::vector<pid_t>& ranks) {
  int worst = 0;
  for (const pid_t rank : ranks) {
    int status = 0;
    ::waitpid(rank, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
  }
  return worst;
}

// Until the last new process is there.
int stay_whole(CommGroup group, int number, std::size_t size) {
  for (;;) {
    try {
      const std::vector<int> members = list_members(group, number);
      if (!adds_up(group, number)) return 3;
      if (members.size() == size && *std::max_element(members.begin(), members.end()) == kNew + kReplaced - 1)
        break;
    } catch (const tutti::Error& error) {
      if (error.code() != tutti::StatusCode::peer_failed) {
        print(std::to_string(number) + " caught " + error.what());
        return 5;
      }
      print(std::to_string(number) + " goes on after " + error.what());
      group = group.reconfigure(static_cast<int>(size));
    }
  }
  print(std::to_string(number) + " ends in " + std::to_string(group.size()));
  return 0;
}

// Kills one rank after the other, and starts a new process for each.
int replace_some(std::vector<pid_t> ranks, const std::string& invitation, unsigned seed) {
  std::mt19937 random(seed);
  const std::size_t size = ranks.size();
  for (int i = 0; i < kReplaced; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
    const std::size_t victim = random() % ranks.size();
    ::kill(ranks[victim], SIGKILL);
    ::waitpid(ranks[victim], nullptr, 0);
    const pid_t pid = ::fork();
    if (pid == 0) {
      try {
        std::exit(stay_whole(tutti::join(invitation, 20s), kNew + i, size));
      } catch (const tutti::Error& error) {
        print(std::to_string(kNew + i) + " threw " + error.what());
        std::exit(7);
      }
    }
    ranks[victim] = pid;
  }
  return wait_for(ranks);
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
  return wait_for(ranks);
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

// Sanitizers map memory of their own as they go.
bool counts_mappings() {
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return false;
#endif
#endif
  return true;
}

// Against the counts of an earlier time.
bool has_left_nothing(std::size_t descriptors, std::size_t mappings) {
  print("descriptors " + std::to_string(descriptors) + " " + std::to_string(count_descriptors()) +
        " mappings " + std::to_string(mappings) + " " + std::to_string(count_mappings()));
  return count_descriptors() <= descriptors && (!counts_mappings() || count_mappings() <= mappings + 8);
}

int repeat(const std::string& id, int rank, int size) {
  CommGroup group = join(id, rank, size);
  if (!adds_up(group, rank)) return 3;
  // A successor needs no more than its predecessor: what the agreement has opened is closed.
  const std::size_t descriptors = count_descriptors();
  std::size_t mappings = 0;
  for (int i = 0; i < 20; ++i) {
    if (!adds_up(group, rank)) return 3;
    group = group.shrink();
    group.barrier();  // all have closed the group before this one by now
    if (i == 4) mappings = count_mappings();
  }
  const bool is_clean = has_left_nothing(descriptors, mappings);
  group.barrier();
  return is_clean ? 0 : 6;
}

constexpr int kRotations = 12;

// Rank 0 waits again and again, which is when transports forget peers that have ended.
void wait_often(const CommGroup& group) {
  for (int i = 0; i < 20; ++i) {
    if (group.rank() == 1) std::this_thread::sleep_for(20ms);
    group.barrier();
  }
}

// Each member but rank 0 comes to rank 1 and leaves.
int rotate(CommGroup group, int number) {
  const int size = group.size();
  std::size_t descriptors = 0, mappings = 0;
  for (int round = 0;; ++round) {
    group.broadcast(std::span(&round, 1), 0);
    if (!adds_up(group, number)) return 3;
    if (round == 4 || round == kRotations) wait_often(group);
    if (round == 4) descriptors = count_descriptors(), mappings = count_mappings();
    if (round == kRotations || group.rank() == 1) break;
    group = group.reconfigure(size, std::vector{1});
  }
  print(std::to_string(number) + " was in a group of " + std::to_string(group.size()));
  // The process that left last may not have ended yet. It takes four descriptors.
  const bool is_clean = number != 0 || has_left_nothing(descriptors + 4, mappings);
  if (group.rank() != 1) group = group.shrink(std::vector{1});  // nobody leaves before rank 0 has counted
  return is_clean ? 0 : 6;
}

// Writes its invitation to the pipe, which the parent reads.
void invite(const CommGroup& group, int pipe) {
  const std::string text = group.invitation() + "\n";
  if (::write(pipe, text.data(), text.size()) != static_cast<ssize_t>(text.size())) std::exit(4);
}

constexpr const char* kOtherNode = "elsewhere";

int grow(CommGroup group, int number, int pipe) {
  if (number < kNew) {
    if (!adds_up(group, number)) return 3;
    group = group.grow(group.size() + 1);
    if (number == 0) invite(group, pipe);
  }
  if (number <= kNew) {
    if (!adds_up(group, number)) return 3;
    if (group.rank() == 1) return 0;
    group = group.reconfigure(group.size(), std::vector{1});
  }
  if (!adds_up(group, number)) return 3;
  print(std::to_string(number) + " is in a group of " + std::to_string(group.size()));
  group.barrier();
  return 0;
}

std::string read_line(int pipe) {
  std::string line;
  for (char byte = 0; ::read(pipe, &byte, 1) == 1 && byte != '\n';) line += byte;
  return line;
}

int run_rank(const std::string& mode, const std::string& id, int rank, int size, int pipe) {
  try {
    if (mode == "repeat") return repeat(id, rank, size);
    if (mode != "replace" && mode != "rotate" && mode != "grow")
      return survive(id, rank, size, std::atoi(mode.c_str()), pipe);
    if (mode == "grow") ::unsetenv("TUTTI_TRANSPORTS");  // shared memory alone, until a node is added
    const CommGroup group = join(id, rank, size);
    if (rank == 0) invite(group, pipe);
    if (mode == "rotate") return rotate(group, rank);
    if (mode == "grow") return grow(group, rank, pipe);
    return stay_whole(group, rank, static_cast<std::size_t>(size));
  } catch (const tutti::Error& error) {
    print("rank " + std::to_string(rank) + " threw " + error.what());
    return 7;
  }
}

pid_t start_new(const std::string& mode, const std::string& invitation, int number) {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  try {
    if (mode == "grow") ::unsetenv("TUTTI_TRANSPORTS");
    if (mode == "grow" && number > kNew) ::setenv("TUTTI_NODE_ID", kOtherNode, 1);
    const CommGroup group = tutti::join(invitation, 20s);
    std::exit(mode == "grow" ? grow(group, number, -1) : rotate(group, number));
  } catch (const tutti::Error& error) {
    print(std::to_string(number) + " threw " + error.what());
    std::exit(7);
  }
}

// Starts the processes that join. Those of `rotate` wait at the same time, and come in any order.
int let_join(const std::string& mode, std::vector<pid_t> ranks, int pipe) {
  std::string invitation;
  for (int i = 0; i < (mode == "grow" ? 2 : kRotations); ++i) {
    if (i == 0 || mode == "grow") invitation = read_line(pipe);
    ranks.push_back(start_new(mode, invitation, kNew + i));
  }
  return wait_for(ranks);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return 2;
  const int size = std::atoi(argv[1]);
  const std::string mode = argv[2];
  const unsigned seed = argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 0;
  const std::string id = tutti::make_unique_id();
  int pipe[2];
  if (::pipe(pipe) != 0) return 2;
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < size; ++rank) {
    const pid_t pid = ::fork();
    if (pid == 0) return run_rank(mode, id, rank, size, pipe[1]);
    ranks.push_back(pid);
  }
  if (mode == "repeat") return wait_for(ranks);
  if (mode == "rotate" || mode == "grow") return let_join(mode, std::move(ranks), pipe[0]);
  if (mode == "replace") return replace_some(ranks, read_line(pipe[0]), seed);
  return kill_some(ranks, static_cast<std::size_t>(std::atoi(mode.c_str())), pipe[0], seed);
}
