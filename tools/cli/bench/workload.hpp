// The gradients of a model, read from a table. Knows no collective and no dtype.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti::tool {

// The vectors are in backward order: the last layer's gradient first.
struct Workload {
  std::string name;
  std::vector<std::uint64_t> element_counts;
  std::vector<std::string> tensors;   // names; empty texts where the table has no column of them
  std::vector<double> forward_flops;  // for one image; zeros where the table does not say
};

// A name that bench/workloads/gradients.csv has, or the path of a CSV file (anything with a '.' or '/').
// Errors: invalid_argument, naming the file, the line and what was expected.
Result<Workload> load_workload(const std::string& name_or_path);

// The rows of `model` (empty: all rows) of a CSV text in forward order. `path` is for messages. Errors: as of
// load_workload().
Result<Workload> parse_workload(std::istream& text, const std::string& path, const std::string& model);

}  // namespace tutti::tool
