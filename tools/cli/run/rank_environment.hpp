// The variables by which a rank of `tutti run` finds its place. Knows no process.
#pragma once

#include <string>

#include "tools/cli/run/run.hpp"

namespace tutti {

// Sets them in this process, which becomes the rank: its place, the job, those of -x, and Horovod's where
// options.is_horovod says so. `elastic_folder`: of an elastic job.
void set_rank_environment(const RunOptions& options, int rank, int local_rank, const std::string& job_id,
                          const std::string& secret, const std::string& elastic_folder);

}  // namespace tutti
