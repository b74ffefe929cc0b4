// Where a thread goes that shares its CPU with a rank it waits for.
#include "runtime/scheduler/cpu_choice.hpp"

#include "tests/support/catch.hpp"

namespace tutti {
namespace {

cpu_set_t allowed_cpus() {
  cpu_set_t allowed;
  REQUIRE(::sched_getaffinity(0, sizeof allowed, &allowed) == 0);
  return allowed;
}

std::uint32_t first_of(const cpu_set_t& cpus) {
  std::uint32_t cpu = 0;
  while (!CPU_ISSET(cpu, &cpus)) ++cpu;
  return cpu;
}

TEST_CASE("a thread leaves its CPU for those without ranks, and may use all afterwards") {
  const cpu_set_t allowed = allowed_cpus();
  const std::uint32_t own = first_of(allowed);
  cpu_set_t taken;
  CPU_ZERO(&taken);
  const auto choice = CpuChoice::besides(own, taken);
  if (CPU_COUNT(&allowed) == 1) {
    CHECK_FALSE(choice);
    return;
  }
  REQUIRE(choice);
  CHECK(CPU_COUNT(&choice->cpus()) == CPU_COUNT(&allowed) - 1);
  CHECK_FALSE(CPU_ISSET(own, &choice->cpus()));
  CHECK(choice->move_there());
  const cpu_set_t afterwards = allowed_cpus();
  CHECK(CPU_EQUAL(&afterwards, &allowed));
}

TEST_CASE("CPUs of other ranks are the last choice") {
  const cpu_set_t allowed = allowed_cpus();
  if (CPU_COUNT(&allowed) < 2) return;
  const std::uint32_t own = first_of(allowed);
  cpu_set_t others = allowed;
  CPU_CLR(own, &others);
  const std::uint32_t other = first_of(others);
  cpu_set_t taken;
  CPU_ZERO(&taken);
  CPU_SET(other, &taken);
  const auto choice = CpuChoice::besides(own, taken);
  REQUIRE(choice);
  CHECK_FALSE(CPU_ISSET(own, &choice->cpus()));
  CHECK((CPU_ISSET(other, &choice->cpus()) != 0) == (CPU_COUNT(&allowed) == 2));
  // With every CPU taken, any but the own one.
  const auto any = CpuChoice::besides(own, allowed);
  REQUIRE(any);
  CHECK(CPU_COUNT(&any->cpus()) == CPU_COUNT(&allowed) - 1);
}

TEST_CASE("a bound thread stays") {
  const cpu_set_t allowed = allowed_cpus();
  const std::uint32_t own = first_of(allowed);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(own, &one);
  REQUIRE(::sched_setaffinity(0, sizeof one, &one) == 0);
  CPU_ZERO(&one);
  CHECK_FALSE(CpuChoice::besides(own, one));
  CHECK(::sched_setaffinity(0, sizeof allowed, &allowed) == 0);
}

}  // namespace
}  // namespace tutti
