// Who this process is in its job, read from the environment variables of the launcher that started it.
// Knows no socket, and no environment but the one it is given.
#pragma once

#include <string>
#include <string_view>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"

namespace tutti {

// One rank's place in a job, and where the ranks of that job meet.
struct LaunchInfo {
  int rank = 0;
  int size = 1;
  int local_rank = 0;
  int local_size = 1;
  std::string meeting_point;  // name of the abstract unix socket; empty for a world of one
  std::string secret;         // proves membership; empty: only the user id does
  std::string launcher;       // "tutti run", "torchrun", "unique id", "exchange", "none"
};

// Recognises, in this order: `tutti run` (TUTTI_JOB_ID with TUTTI_RANK, TUTTI_SIZE, TUTTI_LOCAL_RANK,
// TUTTI_LOCAL_SIZE, TUTTI_SECRET), torchrun and programs that set the same variables by hand (RANK or
// WORLD_SIZE), nothing: a world of one. Errors: invalid_argument naming the variable that is missing, wrong
// or contradicts another, and what was expected; unsupported for a job on several nodes.
Result<LaunchInfo> detect_launch(const Environment& environment);

// A fresh identifier of a job: text without spaces that one process makes and hands to all others by any
// means. It holds the secret of the job, so whoever reads it can join.
Result<std::string> new_unique_id();
// The place of `rank` of `size` in the job of that id. Errors: invalid_argument.
Result<LaunchInfo> launch_from_unique_id(std::string_view id, int rank, int size);

}  // namespace tutti
