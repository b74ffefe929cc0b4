// The CPUs that the calling thread may run on, asked and set.
// Knows CPU numbers of the system, no topology.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti {

// Rising; empty if the system does not tell.
std::vector<std::uint32_t> affinity_of_this_thread();

// Binds the calling thread, and whatever threads and processes it starts later. Errors: unsupported, with the
// CPUs and what the system says.
Status bind_this_thread(std::span<const std::uint32_t> cpus);

}  // namespace tutti
