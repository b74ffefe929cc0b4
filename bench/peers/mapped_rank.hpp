// Binds a rank of a peer's program to a CPU, such as the one that `tutti bench --map` gives it. Knows no library under test.
#pragma once

#include <sched.h>

#include <cstdlib>
#include <string>

namespace tutti::bench {

// False if the system refuses.
inline bool bind_to_cpu(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(cpu), &one);
  return ::sched_setaffinity(0, sizeof one, &one) == 0;
}

// The variable lists a CPU for each rank of the node, by the system's numbers: "0,8,1,9". Unset: false, and the
// rank stays where its launcher has put it. Before the library starts, which places its memory.
inline bool bind_as_mapped(int rank) {
  const char* list = std::getenv("TUTTI_BENCH_CPUS");
  if (list == nullptr || rank < 0) return false;
  char* end = nullptr;
  for (long cpu = std::strtol(list, &end, 10); end != list; cpu = std::strtol(list, &end, 10)) {
    if (rank-- == 0) return bind_to_cpu(static_cast<int>(cpu));
    list = *end == ',' ? end + 1 : end;
  }
  return false;
}

// The rank that an MPI launcher gave this process; -1 before anybody knows.
inline int launched_rank() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMI_RANK"}) {
    if (const char* rank = std::getenv(name)) return std::atoi(rank);
  }
  return -1;
}

}  // namespace tutti::bench
