// Which CPUs the worker threads of each rank get from a list: a pure function, as binding.hpp is for ranks.
// Knows values only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "topology/topology.hpp"

namespace tutti {

// The value of TUTTI_WORKER_AFFINITY, for all ranks of a machine: CPUs by the system's numbers ("0,1,12-15"),
// or sets of them ("0-1;12-13"). Empty: workers may run where their rank may.
struct WorkerCpuList {
  std::vector<std::vector<std::uint32_t>> entries;
};

// "auto", or a list. Errors: invalid_argument.
Result<WorkerCpuList> parse_worker_cpus(std::string_view text);

// By worker of local rank `local_rank` of `local_size`. Neighbouring entries go to one rank, evenly over the
// ranks, and its workers share them in turn. A list shorter than the number of ranks is used in turn. Errors:
// invalid_argument for CPUs that do not exist or are not allowed.
Result<std::vector<std::vector<std::uint32_t>>> plan_workers(const Topology& topology,
                                                             const WorkerCpuList& list,
                                                             std::uint32_t local_size,
                                                             std::uint32_t local_rank,
                                                             std::uint32_t worker_count);

}  // namespace tutti
