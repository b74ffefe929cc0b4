// What the cgroup of this process grants of the CPUs' time; which CPUs, the affinity and hwloc tell.
// Knows the files of Linux, no topology.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

// The tightest CPU quota of the cgroup and those above it, in thousandths of a CPU; 0: no limit, or none
// known. Both versions of cgroups. `root` stands before every path, for tests.
std::uint32_t cpu_quota_milli(const std::string& root = "");

}  // namespace tutti
