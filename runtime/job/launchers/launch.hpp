// Who this process is in its job: read from what the launcher that started it left in the environment, and
// asked of the launcher where it answers. Knows no socket of the job itself, and no environment but the one
// it is given.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "runtime/job/launchers/store.hpp"

namespace tutti {

// One rank's place in a job, and what its ranks need to meet.
struct LaunchInfo {
  int rank = 0;
  int size = 1;
  // On this node, as the launcher counts; a size of 0: it does not say.
  int local_rank = 0;
  int local_size = 0;
  // The launcher's own number of this node, which may divide one machine into several; -1: it does not say.
  int node = -1;
  // Equal on all ranks of the job, and unlike that of any other; without odd characters. Empty for a world of
  // one.
  std::string job;
  std::string secret;    // proves membership; empty: only the user id does, which reaches one node
  std::string host;      // a name or address of the machine of rank 0, or "address:port"; empty: not told
  std::string launcher;  // "tutti run", a word of TUTTI_LAUNCHER, "unique id", "exchange", "none"
  std::shared_ptr<Store> store;  // null: the launcher carries none

  bool may_span_nodes() const { return size > 1 && local_size != size; }
};

// Recognises launchers by their variables, the first one of this order; docs/launchers.md has the table.
// TUTTI_LAUNCHER names one instead, and then no other counts.
//   tutti     TUTTI_JOB_ID: `tutti run`
//   horovod   HOROVOD_RANK: horovodrun with Gloo
//   torchrun  RANK or WORLD_SIZE: torchrun, and people who set the same variables by hand
//   pmix      PMIX_NAMESPACE, where libpmix can be loaded: Open MPI's mpirun, PRRTE, srun --mpi=pmix
//   pmi2      PMI_FD with PMI_JOBID: srun --mpi=pmi2; not where MPI needs that for itself
//   pmi1      PMI_FD or PMI_PORT: Hydra (MPICH, Intel MPI)
//   openmpi   OMPI_COMM_WORLD_RANK: Open MPI's mpirun, where PMIx cannot be used
//   slurm     SLURM_PROCID with SLURM_STEP_NUM_TASKS and SLURM_STEP_ID: srun without all that
//   none      nothing of all that: a world of one
// What runs inside of something else comes first: torchrun is started by srun, and not the other way round.
// RANK that people set by hand must not contradict the rank of a launcher in a job of equal size.
//
// Where the launcher carries a store, this speaks to it until the deadline and keeps the connection to the
// end of the process; a size of one needs none. Errors: invalid_argument naming the variable that is missing,
// wrong or contradicts another, and what was expected; timeout; peer_failed where the launcher has gone.
Result<LaunchInfo> detect_launch(const Environment& environment,
                                 Clock::time_point deadline = Clock::now() + std::chrono::minutes(1));

// The word of TUTTI_LAUNCHER for who started this process, by its variables alone; "none" for nobody.
std::string_view find_launcher(const Environment& environment);

// One launcher of that order, in this environment.
struct LauncherSight {
  std::string_view name;
  bool is_seen = false;
  std::vector<std::string_view> variables;  // those it reads that are set
};
std::vector<LauncherSight> list_launchers(const Environment& environment);

// A fresh identifier of a job: text without spaces that one process makes and hands to all others by any
// means. It holds the secret of the job, so whoever reads it can join, and the addresses of this machine:
// rank 0 of a job on several nodes must be a process of it.
Result<std::string> new_unique_id();
// The place of `rank` of `size` in the job of that id. Errors: invalid_argument.
Result<LaunchInfo> launch_from_unique_id(std::string_view id, int rank, int size);

}  // namespace tutti
