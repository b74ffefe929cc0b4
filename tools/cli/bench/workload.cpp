// Reads workload tables (bench/workloads/README.md is their format). Knows no collective.
#include "tools/cli/bench/workload.hpp"
#include "tools/cli/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>

#include "runtime/base/ascii.hpp"
#include "tools/cli/files.hpp"

namespace tutti::tool {
namespace {

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 40U;
constexpr double kMostFlops = 1e18;

std::vector<std::string_view> fields_of(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  return split(line, ',');
}

std::optional<std::size_t> column_of(const std::vector<std::string_view>& header, std::string_view name) {
  const auto found = std::find(header.begin(), header.end(), name);
  if (found == header.end()) return std::nullopt;
  return static_cast<std::size_t>(found - header.begin());
}

std::optional<std::uint64_t> parse_count(std::string_view text) {
  const auto value = parse_number<std::uint64_t>(text);
  return value && *value > 0 && *value <= kMostElements ? value : std::nullopt;
}

std::optional<double> parse_flops(std::string_view text) {
  if (text.empty()) return 0;
  const auto value = parse_number<double>(text);
  return value && *value >= 0 && *value <= kMostFlops ? value : std::nullopt;
}

// The columns of a table.
struct LayerColumns {
  std::optional<std::size_t> elements, model, tensor, flops;
};

Result<LayerColumns> find_columns(const std::string& line, const std::string& path, bool needs_model) {
  const std::vector<std::string_view> header = fields_of(line);
  const LayerColumns columns{column_of(header, "elements"), column_of(header, "model"),
                             column_of(header, "tensor"), column_of(header, "forward_flops_per_image")};
  if (!columns.elements) {
    return invalid_argument(
        fmt::format("{}, line 1: no column is named 'elements'; the columns are: {}", path, line));
  }
  if (needs_model && !columns.model)
    return invalid_argument(fmt::format("{}, line 1: no column is named 'model'", path));
  return columns;
}

// `where` names the file and the line.
Status add_row(const std::vector<std::string_view>& fields, const LayerColumns& columns,
               const std::string& where, Workload& workload) {
  const auto count = parse_count(fields[*columns.elements]);
  if (!count) {
    return invalid_argument(fmt::format("{}: '{}' is not a number of elements from 1 to {}", where,
                                        fields[*columns.elements], kMostElements));
  }
  const auto flops = columns.flops ? parse_flops(fields[*columns.flops]) : 0.0;
  if (!flops) {
    return invalid_argument(
        fmt::format("{}: '{}' is not a number of operations", where, fields[*columns.flops]));
  }
  workload.element_counts.push_back(*count);
  workload.tensors.emplace_back(columns.tensor ? fields[*columns.tensor] : std::string_view());
  workload.forward_flops.push_back(*flops);
  return {};
}

}  // namespace

Result<Workload> parse_workload(std::istream& text, const std::string& path, const std::string& model) {
  std::string line;
  if (!std::getline(text, line)) return invalid_argument(fmt::format("{}: the file is empty", path));
  const std::size_t column_count = fields_of(line).size();
  const auto columns = find_columns(line, path, !model.empty());
  if (!columns) return columns.status();

  Workload workload;
  workload.name = model.empty() ? path.substr(path.find_last_of('/') + 1) : model;
  std::set<std::string, std::less<>> names;
  for (int number = 2; std::getline(text, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::vector<std::string_view> fields = fields_of(line);
    const std::string where = fmt::format("{}, line {}", path, number);
    if (fields.size() != column_count) {
      return invalid_argument(
          fmt::format("{}: {} fields where the first line has {}", where, fields.size(), column_count));
    }
    if (columns->model) names.emplace(fields[*columns->model]);
    if (!model.empty() && fields[*columns->model] != model) continue;
    TUTTI_RETURN_IF_ERROR(add_row(fields, *columns, where, workload));
  }
  if (workload.element_counts.empty()) {
    if (model.empty()) return invalid_argument(fmt::format("{}: no rows", path));
    return invalid_argument(fmt::format("there is no workload '{}'; there are: {}, or give a CSV file", model,
                                        joined(names, ", ")));
  }
  std::reverse(workload.element_counts.begin(), workload.element_counts.end());
  std::reverse(workload.tensors.begin(), workload.tensors.end());
  std::reverse(workload.forward_flops.begin(), workload.forward_flops.end());
  return workload;
}

Result<Workload> load_workload(const std::string& name_or_path) {
  const bool is_path = name_or_path.find_first_of("./") != std::string::npos;
  std::string path = name_or_path;
  if (!is_path) {
    const auto found = find_data_file("../bench/workloads/gradients.csv", "workloads/gradients.csv");
    if (!found) return found.status();
    path = *found;
  }
  std::ifstream file(path);
  if (!file) return invalid_argument(fmt::format("{}: {}", path, std::strerror(errno)));
  return parse_workload(file, path, is_path ? "" : name_or_path);
}

}  // namespace tutti::tool
