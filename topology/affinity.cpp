// Affinity masks of any size. Knows no topology.
#include "topology/affinity.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "topology/topology.hpp"

namespace tutti {

std::vector<std::uint32_t> affinity_of_this_thread() {
  std::vector<std::uint32_t> cpus;
  // The kernel refuses a set that is smaller than its own.
  for (std::size_t count = 1024; count <= kMaxPus; count *= 2) {
    cpu_set_t* set = CPU_ALLOC(count);
    if (set == nullptr) return {};
    const std::size_t bytes = CPU_ALLOC_SIZE(count);
    CPU_ZERO_S(bytes, set);
    const bool is_known = ::sched_getaffinity(0, bytes, set) == 0;
    const int error = errno;
    for (std::size_t cpu = 0; is_known && cpu < count; ++cpu) {
      if (CPU_ISSET_S(cpu, bytes, set)) cpus.push_back(static_cast<std::uint32_t>(cpu));
    }
    CPU_FREE(set);
    if (is_known || error != EINVAL) break;
  }
  return cpus;
}

Status bind_this_thread(std::span<const std::uint32_t> cpus) {
  const auto failed = [&](std::string_view what) {
    return unsupported(
        fmt::format("cannot bind to the CPUs {}: {}", cpu_list_text({cpus.begin(), cpus.end()}), what));
  };
  if (cpus.empty()) return failed("there are none");
  const std::size_t count = std::size_t{*std::max_element(cpus.begin(), cpus.end())} + 1;
  cpu_set_t* set = CPU_ALLOC(count);
  if (set == nullptr) return failed("out of memory");
  const std::size_t bytes = CPU_ALLOC_SIZE(count);
  CPU_ZERO_S(bytes, set);
  for (const std::uint32_t cpu : cpus) CPU_SET_S(cpu, bytes, set);
  const int result = ::sched_setaffinity(0, bytes, set);
  const int error = errno;
  CPU_FREE(set);
  return result == 0 ? Status() : failed(std::strerror(error));
}

}  // namespace tutti
