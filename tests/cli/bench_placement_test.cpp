// Where `tutti bench` binds its ranks. Knows no group.
#include <sched.h>

#include <thread>
#include <vector>

#include "tests/support/catch.hpp"
#include "tools/cli/bench/placement.hpp"

using namespace tutti::tool;

TEST_CASE("ranks are dealt to the allowed CPUs in turn, also where they outnumber them") {
  const std::vector<int> cpus = allowed_cpus_by(MapLevel::core);
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

TEST_CASE(
    "ranks are mapped to one part of the machine after the other, to each core before its second thread") {
  // Two sockets of two caches; a cache serves two cores of two threads. CPU 15 is not allowed.
  tutti::Topology machine;
  for (std::uint32_t core = 0; core < 8; ++core) {
    machine.cores.push_back({2 * core, 2});
    machine.pus.push_back({core, true});
    machine.pus.push_back({core + 8, core != 7});
  }
  for (std::uint32_t cache = 0; cache < 4; ++cache)
    machine.caches.push_back({3, 1U << 20U, 64, {4 * cache, 4}});
  machine.sockets = {{0, 8}, {8, 8}};
  machine.numa_nodes = {{0, 0, {0, 16}}};
  const auto cpus = [&](MapLevel level) { return allowed_cpus_by(level, machine); };
  CHECK(cpus(MapLevel::core) == std::vector<int>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14});
  CHECK(cpus(MapLevel::llc) == std::vector<int>{0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13});
  CHECK(cpus(MapLevel::numa) == cpus(MapLevel::core));
  CHECK(cpus(MapLevel::socket) == std::vector<int>{0, 4, 1, 5, 2, 6, 3, 7, 8, 12, 9, 13, 10, 14, 11});
  CHECK(map_text(MapLevel::socket, machine) == "bound to one of 2 sockets after the other");
  CHECK(map_text(MapLevel::numa, machine) == "bound to neighbouring cores of one NUMA node");
  // Where only one socket is allowed, nothing is dealt.
  for (std::size_t pu = 8; pu < 16; ++pu) machine.pus[pu].is_allowed = false;
  CHECK(cpus(MapLevel::socket) == std::vector<int>{0, 1, 2, 3, 8, 9, 10, 11});
}

TEST_CASE("levels have the names of --map") {
  for (const char* name : {"core", "llc", "numa", "socket"}) CHECK(to_string(*parse_map_level(name)) == name);
  CHECK_FALSE(parse_map_level("l3"));
}
