// The environment of the tasks of a Slurm step, for srun without PMI. Knows no socket: there is no server to
// ask.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "runtime/job/launchers/launch.hpp"
#include "runtime/job/launchers/rank_variables.hpp"

namespace tutti::detail {

inline constexpr RankVariables kSlurm = {"slurm", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr, nullptr};

// Whether srun started this process. A batch script is no step: it starts steps.
bool is_slurm_step(const Environment& environment);
// The job is Slurm's job and step, the host that of the step's first node, which has rank 0; the secret is
// TUTTI_SECRET. Errors: invalid_argument, naming the variable.
Result<LaunchInfo> launch_from_slurm(const Environment& environment);

// "n[01-03,7],login1": n01. Errors: invalid_argument.
Result<std::string> first_host(std::string_view list);
// "2(x3),1", the tasks of each node: of node 2 these are 2, of node 3 that is 1. Errors: invalid_argument.
Result<int> tasks_of_node(std::string_view list, int node);

}  // namespace tutti::detail
