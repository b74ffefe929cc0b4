// Finds the rank of this process in its job, from variables of the launcher that started it and from answers
// of the launcher. Knows no socket of the job itself, and no environment but the given one.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "runtime/job/launchers/store.hpp"

namespace tutti {

// One rank's position in a job, and the data by which its ranks meet.
struct LaunchInfo {
  int rank = 0;
  int size = 1;
  // On this node, as the launcher counts; a size of 0: not given.
  int local_rank = 0;
  int local_size = 0;
  // The launcher's own number of this node, which may divide one machine into several; -1: not given.
  int node = -1;
  // Equal on all ranks of the job, and unlike that of any other job; without odd characters. Empty for a
  // world of one rank.
  std::string job;
  std::string secret;    // proves membership; empty: the user id does, within one node
  std::string host;      // a name or address of the machine of rank 0, or "address:port"; empty: not given
  std::string launcher;  // "tutti run", a word of TUTTI_LAUNCHER, "unique id", "exchange", "none"
  std::shared_ptr<Store> store;  // null: the launcher has none

  bool may_span_nodes() const { return size > 1 && local_size != size; }
};

// Recognises launchers by their variables, the first one of this order; docs/launchers.md has the table.
// TUTTI_LAUNCHER names one instead, and then no other counts.
//   tutti     TUTTI_JOB_ID: `tutti run`
//   horovod   HOROVOD_RANK: horovodrun with Gloo
//   torchrun  RANK or WORLD_SIZE: torchrun, or the same variables set by hand
//   pmix      PMIX_NAMESPACE, where libpmix can be loaded: Open MPI's mpirun, PRRTE, srun --mpi=pmix
//   pmi2      PMI_FD with PMI_JOBID: srun --mpi=pmi2; not where MPI needs that for itself
//   pmi1      PMI_FD or PMI_PORT: Hydra (MPICH, Intel MPI)
//   openmpi   OMPI_COMM_WORLD_RANK: Open MPI's mpirun, where PMIx cannot be used
//   slurm     SLURM_PROCID with SLURM_STEP_NUM_TASKS and SLURM_STEP_ID: srun without PMI
//   none      nothing of all that: a world of one rank
// A launcher that runs inside another one comes first: srun starts torchrun, not the other way round.
// RANK set by hand must not contradict the rank of a launcher in a job of equal size.
//
// Where the launcher has a store, this connects to it by the deadline and keeps the connection until the
// process ends. A size of one needs none. Errors: invalid_argument naming the variable that is missing, wrong
// or contradicts another, and the expected value; timeout; peer_failed if the launcher is gone.
Result<LaunchInfo> detect_launch(const Environment& environment,
                                 Clock::time_point deadline = Clock::now() + std::chrono::minutes(1));

// The launcher of this process by its variables alone, as TUTTI_LAUNCHER names it; "none" without one.
std::string_view find_launcher(const Environment& environment);

// One launcher of that order, in this environment.
struct LauncherSight {
  std::string_view name;
  bool is_seen = false;
  std::vector<std::string_view> variables;  // variables that it reads and that are set
};
std::vector<LauncherSight> list_launchers(const Environment& environment);

// A fresh identifier of a job: text without spaces, made by one process and handed to all others by any
// means. It holds the secret of the job: any process that reads it can join. It also holds the addresses of
// this machine, where rank 0 of a job on several nodes must run.
Result<std::string> new_unique_id();
// The launch data of `rank` of `size` in the job of that id. Errors: invalid_argument.
Result<LaunchInfo> launch_from_unique_id(std::string_view id, int rank, int size);

}  // namespace tutti
