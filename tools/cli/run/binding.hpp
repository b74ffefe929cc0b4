// Where `tutti run` binds the ranks of this machine, and what it says about that.
// Knows topologies and placements; processes are job.cpp's.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.hpp"
#include "tools/cli/run/run.hpp"
#include "topology/binding.hpp"
#include "topology/topology.hpp"

namespace tutti {

struct RunBinding {
  bool is_asked = false;   // by --bind or TUTTI_PIN: what is done here is not to be done again by the rank
  bool is_active = false;  // false: ranks are left as they are
  Topology topology;
  std::vector<Placement> placements;  // by local rank
};

// From --bind, else TUTTI_PIN. Looks at the machine only if it has to. Errors: invalid_argument, unsupported.
Result<RunBinding> plan_bindings(const RunOptions& options);

// "rank 0: CPUs 0,12, socket 0, NUMA node 0, GPU 0 (cuda0), NIC mlx5_0, 1 thread [BB/../..][../../..]". A
// bracket is a socket, a group a core, B a CPU of the rank, ~ one that is not allowed. Devices are shown
// where there is a GPU and devices were discovered.
std::string describe_binding(const RunBinding& binding, int local_rank, int rank);

// In the process that becomes the rank: its environment and affinity. Errors: unsupported.
Status apply_binding(const RunBinding& binding, int local_rank);

}  // namespace tutti
