// The file of TUTTI_ERROR_FILE: the failure that ended a world on this rank, as one JSON object. Knows no
// connection.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"
#include "runtime/job/bootstrap.hpp"
#include "runtime/scheduler/submitted_calls.hpp"

namespace tutti {

// The group whose failure it is, as this rank sees it.
struct FailedGroup {
  std::vector<int> world_ranks;
  int rank = -1;      // of this process
  CallHistory calls;  // the last one that this rank has submitted; empty: none
};

// One line of JSON. `cause`: a failure whose ranks count by the group.
std::string failure_to_json(const WorldInfo& world, const FailedGroup& group, const Status& cause);

// `pattern`: a path in which %r stands for the rank; without %r and with several ranks, the rank is put before its
// extension. Replaces an older file in one step, so that readers see a whole object. Errors: invalid_argument with
// the system's reason.
Status write_error_file(const std::string& pattern, const WorldInfo& world, const std::string& json);

}  // namespace tutti
