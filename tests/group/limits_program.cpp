// The program that limits_test starts as ranks: does what the words of its command line say, in their order.
// A word may be for one rank only ("refuse_single_copy@1"). Prints what its calls threw, or "fine". Knows the
// public interface only.
#include <dirent.h>
#include <grp.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/call_filter.hpp"
#include "tutti/tutti.hpp"

using tutti::CommGroup;
using namespace tutti::test;

namespace {

[[noreturn]] void give_up(const std::string& why) {
  throw tutti::Error(tutti::StatusCode::internal, -1, why);
}

void need(bool is_done, const char* what) {
  if (!is_done) give_up(std::string("not possible here: ") + what);
}

// -- what the system may take away -------------------------------------------------------------------------

void keep_one_cpu() {
  cpu_set_t all, one;
  CPU_ZERO(&one);
  need(::sched_getaffinity(0, sizeof all, &all) == 0, "sched_getaffinity");
  int cpu = 0;
  while (!CPU_ISSET(cpu, &all)) ++cpu;
  CPU_SET(cpu, &one);
  need(::sched_setaffinity(0, sizeof one, &one) == 0, "sched_setaffinity");
}

// An ordinary user with as many threads as it may have. Nobody else may have that user's number.
void allow_no_thread() {
  const unsigned user = 2000000000U + static_cast<unsigned>(::getpid());
  static rlimit limit;
  need(::getrlimit(RLIMIT_NPROC, &limit) == 0, "getrlimit");
  const rlimit none{1, limit.rlim_max};
  need(::setrlimit(RLIMIT_NPROC, &none) == 0, "setrlimit");
  // LeakSanitizer looks for leaks in a thread of its own when the process ends.
  need(std::atexit([] { ::setrlimit(RLIMIT_NPROC, &limit); }) == 0, "atexit");
  need(::setgroups(0, nullptr) == 0 && ::setresgid(user, user, user) == 0 &&
           ::setresuid(user, user, user) == 0,
       "setresuid");
}

void lock_little_memory() {
  const rlimit little{64 << 10, 64 << 10};
  need(::setrlimit(RLIMIT_MEMLOCK, &little) == 0, "setrlimit");
}

void become_another_user() {
  constexpr unsigned kNobody = 65534;
  need(::setgroups(0, nullptr) == 0 && ::setresgid(kNobody, kNobody, kNobody) == 0 &&
           ::setresuid(kNobody, kNobody, kNobody) == 0,
       "setresuid");
}

// -- what the ranks do -------------------------------------------------------------------------------------

std::uint64_t value_of(int rank, std::size_t i) {
  return 1000000007ULL * static_cast<std::uint64_t>(rank) + i;
}

void allreduce(const CommGroup& world, std::size_t bytes, std::span<std::uint64_t> input,
               std::span<std::uint64_t> output) {
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = value_of(world.rank(), i);
  world.allreduce(input, output);
  std::uint64_t first = 0;
  for (int rank = 0; rank < world.size(); ++rank) first += value_of(rank, 0);
  for (std::size_t i = 0; i < output.size(); ++i) {
    if (output[i] != first + static_cast<std::uint64_t>(world.size()) * i)
      give_up("wrong sum in an allreduce of " + std::to_string(bytes) + " B");
  }
}

// Rank 0 has half of everything, so that one message is large and the others are not.
void allgather_uneven(const CommGroup& world, std::size_t bytes) {
  const std::size_t total = bytes / sizeof(std::uint64_t);
  std::vector<std::uint64_t> counts;
  for (std::size_t left = total; counts.size() + 1 < static_cast<std::size_t>(world.size());
       left -= counts.back())
    counts.push_back(left / 2 + 1);
  std::size_t others = 0;
  for (const std::uint64_t count : counts) others += count;
  counts.push_back(total - others);
  std::vector<std::uint64_t> input(counts[static_cast<std::size_t>(world.rank())]), output(total);
  for (std::size_t i = 0; i < input.size(); ++i) input[i] = value_of(world.rank(), i);
  world.allgatherv(input.data(), output.data(), counts, {}, tutti::Dtype::u64);
  std::size_t at = 0;
  for (int rank = 0; rank < world.size(); ++rank) {
    for (std::size_t i = 0; i < counts[static_cast<std::size_t>(rank)]; ++i) {
      if (output[at++] != value_of(rank, i))
        give_up("wrong block in an allgatherv of " + std::to_string(bytes) + " B");
    }
  }
}

// Over lines and staging memory of control blocks, over buffers that peers map, and over messages (all of it without
// control blocks): small, through rings, and large enough for reads through the kernel.
void call(const CommGroup& world) {
  for (const std::size_t bytes :
       {std::size_t{8}, std::size_t{64} << 10U, std::size_t{1} << 20U, std::size_t{8} << 20U}) {
    const std::size_t count = bytes / sizeof(std::uint64_t);
    std::vector<std::uint64_t> input(count), output(count);
    allreduce(world, bytes, input, output);
    auto* const shared = static_cast<std::uint64_t*>(tutti::alloc(world, 2 * bytes));
    allreduce(world, bytes, {shared, count}, {shared + count, count});
    tutti::free(world, shared);
  }
  allgather_uneven(world, std::size_t{1} << 20U);
  allgather_uneven(world, std::size_t{8} << 20U);
}

// Affinities of all threads of this process that differ from `expected`.
int count_other_affinities(const cpu_set_t& expected) {
  int others = 0;
  DIR* const tasks = ::opendir("/proc/self/task");
  need(tasks != nullptr, "/proc/self/task");
  while (const dirent* entry = ::readdir(tasks)) {
    if (entry->d_name[0] == '.') continue;
    cpu_set_t found;
    need(::sched_getaffinity(std::atoi(entry->d_name), sizeof found, &found) == 0, "sched_getaffinity");
    others += CPU_EQUAL(&found, &expected) ? 0 : 1;
  }
  ::closedir(tasks);
  return others;
}

long cpu_time_us() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto us = [](const timeval& time) { return time.tv_sec * 1000000L + time.tv_usec; };
  return us(used.ru_utime) + us(used.ru_stime);
}

void idle() {
  const long before = cpu_time_us();
  // The processor time of this period is measured.
  std::this_thread::sleep_for(std::chrono::seconds(3));
  std::printf("used %ld us\n", cpu_time_us() - before);
}

void do_words(int rank, const std::vector<std::string>& words) {
  std::optional<CommGroup> world;
  const auto joined = [&]() -> const CommGroup& {
    if (!world) world = tutti::init();
    return *world;
  };
  cpu_set_t affinity;
  CPU_ZERO(&affinity);
  const std::map<std::string, std::function<void()>> actions = {
      {"no_thread", allow_no_thread},
      {"one_cpu", keep_one_cpu},
      {"little_locked_memory", lock_little_memory},
      {"another_user", become_another_user},
      {"refuse_single_copy", [] { need(filter_call(SYS_process_vm_readv, CallFilter::refuse), "seccomp"); }},
      {"deadly_single_copy", [] { need(filter_call(SYS_process_vm_readv, CallFilter::kill), "seccomp"); }},
      {"join", [&] { joined(); }},
      {"call", [&] { call(joined()); }},
      {"idle", idle},
      {"note_affinity",
       [&] { need(::sched_getaffinity(0, sizeof affinity, &affinity) == 0, "sched_getaffinity"); }},
      {"same_affinity",
       [&] {
         if (const int others = count_other_affinities(affinity); others != 0)
           give_up(std::to_string(others) + " threads have another affinity");
       }},
  };
  for (const std::string& word : words) {
    const std::size_t at = word.find('@');
    if (at != std::string::npos && std::stoi(word.substr(at + 1)) != rank) continue;
    actions.at(word.substr(0, at))();
  }
}

}  // namespace

int main(int argc, char** argv) {
  const char* const rank = std::getenv("TUTTI_RANK");
  try {
    do_words(rank == nullptr ? 0 : std::atoi(rank), {argv + 1, argv + argc});
  } catch (const tutti::Error& error) {
    std::printf("caught %s\n", error.what());
    return 4;
  }
  std::printf("fine\n");
  // A build that looks for leaks looks into this process at its end, which a change of users has forbidden.
  ::prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
  return 0;
}
