// Reads workload tables (bench/workloads/README.md is their format). Knows no collective.
#include "tools/cli/bench/workload.hpp"
#include "tools/cli/arguments.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>

#include "tools/cli/files.hpp"

namespace tutti::tool {
namespace {

constexpr std::uint64_t kMostElements = std::uint64_t{1} << 40U;

std::vector<std::string_view> split(std::string_view line) {
  while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.remove_suffix(1);
  std::vector<std::string_view> fields;
  for (;;) {
    const std::size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return fields;
    line.remove_prefix(comma + 1);
  }
}

std::optional<std::size_t> column_of(const std::vector<std::string_view>& header, std::string_view name) {
  const auto found = std::find(header.begin(), header.end(), name);
  if (found == header.end()) return std::nullopt;
  return static_cast<std::size_t>(found - header.begin());
}

std::optional<std::uint64_t> parse_count(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if (value == 0 || value > kMostElements) return std::nullopt;
  return value;
}

}  // namespace

Result<Workload> parse_workload(std::istream& text, const std::string& path, const std::string& model) {
  std::string line;
  if (!std::getline(text, line)) return invalid_argument(fmt::format("{}: the file is empty", path));
  const std::string header_line = line;
  const std::vector<std::string_view> header = split(header_line);
  const auto elements = column_of(header, "elements");
  const auto models = column_of(header, "model");
  if (!elements) {
    return invalid_argument(
        fmt::format("{}, line 1: no column is named 'elements'; the columns are: {}", path, header_line));
  }
  if (!model.empty() && !models)
    return invalid_argument(fmt::format("{}, line 1: no column is named 'model'", path));

  Workload workload;
  workload.name = model.empty() ? path.substr(path.find_last_of('/') + 1) : model;
  std::set<std::string, std::less<>> names;
  for (int number = 2; std::getline(text, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::vector<std::string_view> fields = split(line);
    if (fields.size() != header.size()) {
      return invalid_argument(fmt::format("{}, line {}: {} fields where the first line has {}", path, number,
                                          fields.size(), header.size()));
    }
    if (models) names.emplace(fields[*models]);
    if (!model.empty() && fields[*models] != model) continue;
    const auto count = parse_count(fields[*elements]);
    if (!count) {
      return invalid_argument(fmt::format("{}, line {}: '{}' is not a number of elements from 1 to {}", path,
                                          number, fields[*elements], kMostElements));
    }
    workload.element_counts.push_back(*count);
  }
  if (workload.element_counts.empty()) {
    if (model.empty()) return invalid_argument(fmt::format("{}: no rows", path));
    return invalid_argument(fmt::format("there is no workload '{}'; there are: {}, or give a CSV file", model,
                                        joined(names, ", ")));
  }
  std::reverse(workload.element_counts.begin(), workload.element_counts.end());
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
