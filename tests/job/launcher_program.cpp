// The program that launchers_test.py starts with real launchers: one behaviour per word on its command line.
// Prints one line per rank. Built alone, and with each MPI library for what mixes both.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "runtime/job/launchers/launch.hpp"
#include "tutti/tutti.hpp"

#ifdef TUTTI_TEST_MPI
#include <mpi.h>
#endif

using namespace std::chrono_literals;
using tutti::Clock;
using tutti::LaunchInfo;
using tutti::Status;

namespace {

// One write, so that lines of several ranks do not mix.
void print(const std::string& text) {
  const std::string line = text + "\n";
  if (::write(1, line.data(), line.size()) != static_cast<ssize_t>(line.size())) std::abort();
}

LaunchInfo detect() {
  tutti::Result<LaunchInfo> info = tutti::detect_launch(tutti::Environment::of_process());
  if (info) return *info;
  print("detect_launch: " + info.status().to_string());
  std::exit(1);
}

// A value as no protocol likes it: separators, and longer than one piece. `round` tells worlds apart.
std::string value_of(int round, std::size_t bytes) {
  std::string text = "round=" + std::to_string(round) + "; cmd=put key=\"a b\"\n%s~00";
  for (std::size_t i = 0; text.size() < bytes; ++i) text += static_cast<char>(' ' + i % 95);
  return text;
}

Status check_store(const LaunchInfo& info, int round) {
  if (!info.store) return tutti::unsupported("no store");
  const auto deadline = Clock::now() + 20s;
  const std::string key = "tutti/" + info.job + "/" + std::to_string(round) + "/root";
  const std::string value = value_of(round, round == 1 ? 5000 : 300);
  if (info.rank == 0) TUTTI_RETURN_IF_ERROR(info.store->put(key, value));
  TUTTI_RETURN_IF_ERROR(info.store->commit(deadline));
  const tutti::Result<std::string> got = info.store->get(key, deadline);
  if (!got) return got.status();
  return *got == value ? Status() : tutti::internal_error("another value");
}

std::string describe_place(const LaunchInfo& info) {
  return info.launcher + ": rank " + std::to_string(info.rank) + " of " + std::to_string(info.size) +
         ", local " + std::to_string(info.local_rank) + " of " + std::to_string(info.local_size) + ", node " +
         std::to_string(info.node);
}

// Prints rank and node of this process, then three rounds of the store.
int place() {
  const LaunchInfo info = detect();
  std::string line = describe_place(info);
  for (int round = 0; round < 3; ++round) {
    const Status status = check_store(info, round);
    line += status ? ", store ok" : ", " + status.to_string();
  }
  print(line);
  // A launcher that takes the others' end for a crash kills rank 0 now.
  if (info.rank == 0) std::this_thread::sleep_for(500ms);
  print("rank " + std::to_string(info.rank) + " leaves");
  return 0;
}

void add_up(const tutti::CommGroup& world) {
  std::vector<int> values(1000, world.rank());
  world.allreduce(std::span(values));
  const int expected = world.size() * (world.size() - 1) / 2;
  for (const int v : values) {
    if (v != expected) throw tutti::Error(tutti::StatusCode::internal, -1, "wrong sum");
  }
}

// A world, an allreduce, and what went wrong otherwise.
int join(const std::string& when) {
  try {
    const tutti::CommGroup world = tutti::init();
    add_up(world);
    const tutti::CommGroup again = tutti::init();
    add_up(again);
    print(when + ": rank " + std::to_string(world.rank()) + " of " + std::to_string(world.size()) + " sums");
    return 0;
  } catch (const tutti::Error& error) {
    print(when + ": " + std::string(tutti::to_string(error.code())) + ": " + error.what());
    return 3;
  }
}

// A child of fork() must not speak for its parent, and its exit() must not end the parent's session.
int fork_child() {
  const LaunchInfo info = detect();
  Status status = check_store(info, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_refused = !info.store->put("from the child", "x");
    std::exit(is_refused ? 7 : 8);
  }
  int child_status = 0;
  ::waitpid(child, &child_status, 0);
  if (status) status = check_store(info, 1);
  print("rank " + std::to_string(info.rank) + ": child " + std::to_string(WEXITSTATUS(child_status)) + ", " +
        (status ? "store ok" : status.to_string()));
  return 0;
}

// Rank 0 does not come; the others say so in time.
int absent() {
  const LaunchInfo info = detect();
  if (info.rank == 0) {
    // Longer than the others wait; the launcher may kill them when this rank ends.
    std::this_thread::sleep_for(2s);
    return 0;
  }
  const auto deadline = Clock::now() + 300ms;
  Status status = info.store->commit(deadline);
  if (status) status = info.store->get("missing", deadline).status();
  print("rank " + std::to_string(info.rank) + ": " + status.to_string());
  std::this_thread::sleep_for(1s);  // the launcher may end the others with the first one that leaves
  return 0;
}

#ifdef TUTTI_TEST_MPI
void add_up_with_mpi() {
  int rank = 0, size = 0, sum = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
  print("MPI: rank " + std::to_string(rank) + (sum == size * (size - 1) / 2 ? " sums" : " has a wrong sum"));
}

int mpi_first() {
  MPI_Init(nullptr, nullptr);
  const int status = join("mpi_first");
  add_up_with_mpi();
  MPI_Finalize();
  return status;
}

// The launcher has something of rank 0 already, but not yet what the others ask for.
int mpi_late() {
  MPI_Init(nullptr, nullptr);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  // The others mostly ask before; too early only tests less.
  if (rank == 0) std::this_thread::sleep_for(1500ms);
  const int status = join("mpi_late");
  add_up_with_mpi();
  MPI_Finalize();
  return status;
}

int mpi_second() {
  const int status = join("mpi_second");
  MPI_Init(nullptr, nullptr);
  add_up_with_mpi();
  MPI_Finalize();
  return status;
}

// The world is made first and used after MPI has come and gone.
int mpi_inside() {
  const tutti::CommGroup world = tutti::init();
  MPI_Init(nullptr, nullptr);
  add_up_with_mpi();
  MPI_Finalize();
  add_up(world);
  print("mpi_inside: rank " + std::to_string(world.rank()) + " sums");
  return 0;
}

int mpi_over() {
  MPI_Init(nullptr, nullptr);
  add_up_with_mpi();
  MPI_Finalize();
  return join("mpi_over");
}
#endif

}  // namespace

int main(int argc, char** argv) {
  const std::map<std::string, std::function<int()>> behaviours = {
      {"place", place},           {"join", [] { return join("join"); }},
      {"fork", fork_child},       {"absent", absent},
#ifdef TUTTI_TEST_MPI
      {"mpi_first", mpi_first},   {"mpi_late", mpi_late},
      {"mpi_second", mpi_second}, {"mpi_inside", mpi_inside},
      {"mpi_over", mpi_over},
#endif
  };
  const auto found = behaviours.find(argc > 1 ? argv[1] : "");
  return found == behaviours.end() ? 99 : found->second();
}
