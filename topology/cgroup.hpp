// The CPU time and the memory that the cgroup of this process grants; the allowed CPUs come from the affinity
// and hwloc. Knows the files of Linux, no topology.
#pragma once

#include <cstdint>
#include <string>

namespace tutti {

// The tightest limits of the cgroup and those above it, in both versions of cgroups; 0: no limit, or none
// known.
struct CgroupLimits {
  std::uint32_t cpu_quota_milli = 0;  // thousandths of a CPU
  std::uint64_t memory_bytes = 0;     // without swap
  bool operator==(const CgroupLimits&) const = default;
};
// `root` stands before every path, for tests.
CgroupLimits cgroup_limits(const std::string& root = "");

}  // namespace tutti
