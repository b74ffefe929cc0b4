// Fuzz target: any bytes are either refused as a workload and as a table of measurements, with a line, or are
// rows that can be used.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <sstream>
#include <string>
#include <string_view>

#include "tools/cli/bench/workload.hpp"
#include "tools/cli/tune/measurements.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  for (const char* model : {"", "resnet50"}) {
    std::istringstream stream(text);
    const auto workload = tutti::tool::parse_workload(stream, "F", model);
    if (!workload) require(!workload.status().message().empty());
    if (workload) {
      require(!workload->element_counts.empty());
      for (const std::uint64_t count : workload->element_counts) require(count > 0);
      require(workload->tensors.size() == workload->element_counts.size());
      require(workload->forward_flops.size() == workload->element_counts.size());
      for (const double flops : workload->forward_flops) require(flops >= 0);
    }
  }
  const auto table = tutti::tool::parse_csv(text);
  if (!table) {
    require(!table.status().message().empty());
    return 0;
  }
  require(!table->columns.empty() && table->rows.size() == table->lines.size());
  for (const auto& row : table->rows) require(row.size() == table->columns.size());
  for (const std::string& name : table->columns) require(table->column(name).is_ok());
  return 0;
}
