// Deals a list of CPUs to the progress threads of the ranks: a pure function, as binding.hpp is for ranks.
// Knows values only.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "topology/topology.hpp"

namespace tutti {

// The value of TUTTI_PROGRESS_AFFINITY, for all ranks of a machine: CPUs by the system's numbers ("0,1,12-15"),
// or sets of them ("0-1;12-13"). Empty: threads may run where their rank may.
struct ProgressCpuList {
  std::vector<std::vector<std::uint32_t>> entries;
};

// "auto", or a list. Errors: invalid_argument.
Result<ProgressCpuList> parse_progress_cpus(std::string_view text);

// By thread of local rank `local_rank` of `local_size`. Neighbouring entries go to one rank, evenly over the
// ranks, and its threads share them in turn. A list shorter than the number of ranks is used in turn. Errors:
// invalid_argument for CPUs that do not exist or are not allowed.
Result<std::vector<std::vector<std::uint32_t>>> plan_progress_cpus(const Topology& topology,
                                                                   const ProgressCpuList& list,
                                                                   std::uint32_t local_size,
                                                                   std::uint32_t local_rank,
                                                                   std::uint32_t thread_count);

}  // namespace tutti
