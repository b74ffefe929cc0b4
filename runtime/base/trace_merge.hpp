// Puts the traces of the ranks of a job into one, with aligned clocks. Knows the events of trace.hpp.
//
// Each collective gets two slices: "waiting" until the ranks that it needs have called it, and "moving". Arrows lead
// from the rank that called last to those that have waited for it.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti {

// The text of one rank's file. A last line that was cut off is left out.
struct TracePart {
  std::string path, text;
};

// Calls `put` for each event of the merged trace, a JSON object. Clocks that agree as far as collectives tell are left
// alone. Errors: invalid_argument with path and line: it is no trace, or has no ranks' numbers.
Status merge_traces(const std::vector<TracePart>& parts, const std::function<void(std::string_view)>& put);

// Reads the files and writes the merged trace. Errors: invalid_argument with path and reason.
Status merge_trace_files(const std::vector<std::string>& paths, const std::string& merged);

}  // namespace tutti
