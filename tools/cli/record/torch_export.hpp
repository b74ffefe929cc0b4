// Records in the form of the dumps that torch's flight-recorder analyser reads (torchfrtrace). Knows no file.
#pragma once

#include <map>
#include <string>

#include "tools/cli/json.hpp"
#include "tools/cli/record/job_records.hpp"

namespace tutti::tool {

// The dump of each rank, by rank of the world. Collectives that torch does not have (scan, exscan) and messages between
// two ranks are left out. So are operations that some rank of the group does not remember any more.
std::map<int, Json> torch_dumps(const JobRecords& job);

// A value in Python's pickle format, protocol 2. Of numbers natural ones only.
std::string pickle_of(const Json& value);

// Writes `<folder>/tutti_trace_<rank>`. The folder is made. Errors: invalid_argument with path and reason.
Status export_for_torch(const JobRecords& job, const std::string& folder);

}  // namespace tutti::tool
