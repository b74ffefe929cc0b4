// PMIx, the protocol of Open MPI's mpirun, PRRTE and Slurm with the processes they start: rank, node and a
// store. Knows no bootstrap. libpmix is loaded only under a launcher that speaks PMIx, and never linked.
#pragma once

#include <memory>
#include <string>

#include "runtime/base/config.hpp"
#include "runtime/job/launchers/launch.hpp"

namespace tutti::detail {

// Empty if this process can use PMIx; else the reason: built without its header, or no library.
std::string why_no_pmix();

// The launch data that PMIx gives, with its store; `launcher` is set by the caller. PMIx counts its users in
// a process: MPI_Init may come before or after, and our PMIx_Finalize does not end it for an MPI library.
// Errors: invalid_argument where PMIX_NAMESPACE is not of this process; unsupported; timeout; peer_failed.
Result<LaunchInfo> launch_from_pmix(const Environment& environment, Clock::time_point deadline);

}  // namespace tutti::detail
