// Where `tutti bench` binds its ranks. Knows no group.
#include <sched.h>

#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tools/cli/bench/placement.hpp"

using namespace tutti::tool;

TEST_CASE("ranks are dealt to the allowed CPUs in turn, also where they outnumber them") {
  const std::vector<int> cpus = allowed_cpus_by_core();
  REQUIRE_FALSE(cpus.empty());
  for (std::size_t rank = 0; rank < 2 * cpus.size() + 1; ++rank) {
    cpu_set_t bound;
    CPU_ZERO(&bound);
    tutti::Status status;
    std::thread([&] {
      status = bind_to_core(static_cast<int>(rank), cpus);
      ::sched_getaffinity(0, sizeof bound, &bound);
    }).join();
    CAPTURE(rank);
    CHECK(status.is_ok());
    CHECK(CPU_COUNT(&bound) == 1);
    CHECK(CPU_ISSET(cpus[rank % cpus.size()], &bound));
  }
}
