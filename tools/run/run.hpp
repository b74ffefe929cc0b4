// `tutti run`: starts the ranks of one job on this machine and supervises them until the last has ended.
// Knows nothing of groups or transports; ranks find each other through the environment it sets.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti {

struct RunOptions {
  int rank_count = 0;
  bool has_prefix = true;                 // "[rank] " before every line of output
  std::chrono::milliseconds grace{5000};  // from SIGTERM to SIGKILL when the job is ended
  std::vector<std::string> program;       // the program and its arguments
  bool wants_help = false;
};

// Reads what follows the word `run`: options up to the first word that is none, then the program.
// Without -n there are as many ranks as CPUs this process may use. Errors: invalid_argument naming the
// option.
Result<RunOptions> parse_run_options(std::span<const std::string_view> arguments);

// Starts the ranks and returns the exit status of the job: 0 if every rank ended with 0, else what the first
// rank that failed ended with (128 + signal if killed), 127 if the program is not found, 126 if it cannot be
// executed. Prints one line with the cause to stderr. While it runs the process is a child subreaper, and on
// return no process that the ranks started is left. Call it from a process with one thread.
//
// Environment of each rank: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, the same as TUTTI_RANK,
// TUTTI_SIZE, TUTTI_LOCAL_RANK, TUTTI_LOCAL_SIZE, and TUTTI_ADDRESS, TUTTI_JOB_ID (random), TUTTI_SECRET
// (random; never in an argument, never printed).
int run_job(const RunOptions& options);

// The sub-command: argv[0] is "run". Returns the exit status of the process.
int run_command(int argc, char** argv);

// How many CPUs this process may use (sched_getaffinity), at least 1.
int count_allowed_cpus();

}  // namespace tutti
