// Processes that ranks have started: finds, names and ends them. Knows /proc, no rank's state.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/owned_fd.hpp"
#include "runtime/base/status.hpp"

namespace tutti {

// Children of this process, adopted orphans included; empty where the kernel does not list them.
std::vector<pid_t> list_children();

// "rank 3 left sleep (pid 77) running"; empty for a process that has ended. The rank is that of the
// environment with which the process was started.
std::string describe_leftover(pid_t pid);

// A process that outlives a `tutti run` which is killed, and then ends whatever has TUTTI_JOB_ID=`job_id` in
// its environment. The kernel ends the ranks themselves (PR_SET_PDEATHSIG), but not what they have started.
class Keeper {
 public:
  // From a process with one thread. Errors: resource_exhausted.
  static Result<Keeper> start(const std::string& job_id);
  // The job has ended in order: the keeper goes and touches nothing.
  void dismiss();

 private:
  pid_t pid_ = -1;
  OwnedFd lifeline_;  // its end without a word is our death
};

}  // namespace tutti
