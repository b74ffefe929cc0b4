// Reading of the two files.
#include "tools/cli/tune/measurements.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "runtime/base/ascii.hpp"
#include "tools/cli/arguments.hpp"

namespace tutti::tool {
namespace {

// One line's fields; false for a quote that is never closed.
bool split_fields(std::string_view line, std::vector<std::string>& fields) {
  fields.assign(1, "");
  bool is_quoted = false;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"' && is_quoted && i + 1 < line.size() && line[i + 1] == '"') {
      fields.back() += line[++i];
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (c == ',' && !is_quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return !is_quoted;
}

template <class Number>
bool parse_whole(const std::string& text, Number* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// Columns by name, absent ones where they may be.
class Columns {
 public:
  Columns(const CsvTable& table, const std::string& path) : table_(table), path_(path) {}
  Status require(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      if (const auto found = table_.column(name); !found) return found.status().with_context(path_);
    }
    return {};
  }
  std::string text(std::size_t row, std::string_view name) const {
    const auto column = table_.column(name);
    return column ? table_.rows[row][*column] : std::string();
  }
  Status bad(std::size_t row, std::string_view name, std::string_view expected) const {
    return invalid_argument(fmt::format("{}: line {}: {} '{}': expected {}", path_, table_.lines[row], name,
                                        text(row, name), expected));
  }

 private:
  const CsvTable& table_;
  const std::string& path_;
};

}  // namespace

Result<std::size_t> CsvTable::column(std::string_view name) const {
  const auto found = std::find(columns.begin(), columns.end(), name);
  if (found != columns.end()) return static_cast<std::size_t>(found - columns.begin());
  return invalid_argument(fmt::format("no column '{}'; there are: {}", name, joined(columns, " ")));
}

Result<CsvTable> parse_csv(std::string_view text) {
  CsvTable table;
  std::vector<std::string> fields;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    if (!split_fields(line, fields))
      return invalid_argument(fmt::format("line {}: a quote is not closed", number));
    if (table.columns.empty()) {
      table.columns = fields;
    } else if (fields.size() != table.columns.size()) {
      return invalid_argument(
          fmt::format("line {}: {} fields; expected {}", number, fields.size(), table.columns.size()));
    } else {
      table.rows.push_back(fields);
      table.lines.push_back(number);
    }
  }
  if (table.columns.empty()) return invalid_argument("expected a first line with the names of the columns");
  return table;
}

Result<CsvTable> read_csv(const std::string& path) {
  std::ifstream file(path);
  if (!file) return invalid_argument(fmt::format("{}: {}", path, std::strerror(errno)));
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  auto table = parse_csv(text);
  if (!table) return table.status().with_context(path);
  return table;
}

Result<Collective> collective_of(std::string_view name) {
  const std::string lower = to_lower(name);
  if (lower == "bcast") return Collective::broadcast;
  const auto found = parse_collective(lower);
  if (found && *found != Collective::send_recv) return *found;
  return invalid_argument(fmt::format("'{}' is no collective", name));
}

Result<Measurements> read_measurements(const std::string& path) {
  const auto table = read_csv(path);
  if (!table) return table.status();
  const Columns columns(*table, path);
  TUTTI_RETURN_IF_ERROR(columns.require(
      {"system", "collective", "nnodes", "tasks_per_node", "algo", "elements_int32", "median_us"}));
  Measurements measured;
  for (std::size_t row = 0; row < table->rows.size(); ++row) {
    Job job;
    job.system = columns.text(row, "system");
    job.collective = columns.text(row, "collective");
    job.library = columns.text(row, "lib");
    job.name = columns.text(row, "timestamp") + "/" + columns.text(row, "test_id");
    if (!parse_whole(columns.text(row, "nnodes"), &job.nodes) || job.nodes == 0)
      return columns.bad(row, "nnodes", "a number from 1");
    if (!parse_whole(columns.text(row, "tasks_per_node"), &job.ranks_per_node) || job.ranks_per_node == 0)
      return columns.bad(row, "tasks_per_node", "a number from 1");
    std::uint64_t elements = 0;
    if (!parse_whole(columns.text(row, "elements_int32"), &elements))
      return columns.bad(row, "elements_int32", "a number");
    const std::string text = columns.text(row, "median_us");
    const std::optional<double> median = parse_number<double>(text);
    if (!median || !(*median > 0) || *median > 1e15)
      return columns.bad(row, "median_us", "microseconds above 0");
    constexpr std::uint64_t kElementBytes = 4;
    measured[job][columns.text(row, "algo")][elements * kElementBytes] = *median;
  }
  return measured;
}

Result<AliasMap> read_alias_map(const std::string& path) {
  const auto table = read_csv(path);
  if (!table) return table.status();
  const Columns columns(*table, path);
  TUTTI_RETURN_IF_ERROR(columns.require({"collective", "algo", "algorithm"}));
  AliasMap map;
  for (std::size_t row = 0; row < table->rows.size(); ++row) {
    const auto collective = collective_of(columns.text(row, "collective"));
    if (!collective) return columns.bad(row, "collective", "ALLREDUCE, BCAST, ...");
    const std::string name = columns.text(row, "algo");
    // A name that stands for the library's own choice is no algorithm.
    if (name.rfind("default", 0) == 0 || name.rfind("non_blocking", 0) == 0)
      return columns.bad(row, "algo", "an algorithm's name");
    auto item = parse_argument(*collective, columns.text(row, "algorithm"));
    if (!item) return item.status().with_context(fmt::format("{}: line {}", path, table->lines[row]));
    if (item->row == nullptr) return columns.bad(row, "algorithm", "an algorithm of the catalogue");
    map[columns.text(row, "collective")].push_back({name, *std::move(item)});
  }
  return map;
}

}  // namespace tutti::tool
