// PMIx, which Open MPI's mpirun, PRRTE and Slurm speak with the processes they start: rank, node and a store.
// Knows no bootstrap; libpmix is loaded when a launcher that speaks it has started this process, and never
// linked.
#pragma once

#include <memory>
#include <string>

#include "runtime/base/config.hpp"
#include "runtime/job/launchers/launch.hpp"

namespace tutti::detail {

// Can this process use PMIx? Empty: yes; else why not: built without its header, or the library is not there.
std::string why_no_pmix();

// The place that PMIx tells, with its store; `launcher` is set by the caller. PMIx counts who uses it in a
// process, so MPI_Init may come before or after, and the farewell at the end of the process does not end it
// for an MPI library. Errors: invalid_argument where PMIX_NAMESPACE is not of this process; unsupported;
// timeout; peer_failed.
Result<LaunchInfo> launch_from_pmix(const Environment& environment, Clock::time_point deadline);

}  // namespace tutti::detail
