// Parsing of arguments that several sub-commands share.
#include "tools/cli/arguments.hpp"

#include <charconv>
#include <cstdio>
#include <string>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace tutti::tool {
namespace {

constexpr std::uint32_t kLargestSize = 1U << 20U;

bool take_number(std::string_view& text, std::uint32_t* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  if (error != std::errc() || *value == 0 || *value > kLargestSize) return false;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

}  // namespace

bool parse_arguments(CLI::App& app, int argc, char** argv, int* status) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::Success& help) {
    *status = app.exit(help);
  } catch (const CLI::ParseError& error) {
    const std::string& name = app.get_name();
    fmt::print(stderr, "{}: {}\nTry '{} --help'.\n", name, error.what(), name);
    *status = 2;
  }
  return false;
}

Result<std::vector<std::uint32_t>> parse_sizes(std::string_view text) {
  const Status malformed =
      invalid_argument(fmt::format("'{}' is no list of group sizes; expected 8, 1..64 or 2,3,7..9", text));
  std::vector<std::uint32_t> sizes;
  while (true) {
    std::uint32_t first = 0;
    if (!take_number(text, &first)) return malformed;
    std::uint32_t last = first;
    if (text.substr(0, 2) == "..") {
      text.remove_prefix(2);
      if (!take_number(text, &last) || last < first) return malformed;
    }
    for (std::uint32_t n = first; n <= last; ++n) sizes.push_back(n);
    if (text.empty()) return sizes;
    if (text.front() != ',') return malformed;
    text.remove_prefix(1);
  }
}

Result<std::vector<const AlgorithmRow*>> select_rows(std::string_view collective,
                                                     std::string_view algorithm) {
  std::vector<const AlgorithmRow*> rows;
  std::string collectives, algorithms;
  const auto parsed = parse_collective(collective);
  for (const AlgorithmRow& row : catalog()) {
    if (collectives.find(to_string(row.collective)) == std::string::npos)
      collectives += fmt::format(" {}", to_string(row.collective));
    if (!collective.empty() && parsed != row.collective) continue;
    algorithms += fmt::format(" {}", row.name);
    if (algorithm.empty() || algorithm == row.name) rows.push_back(&row);
  }
  if (!collective.empty() && algorithms.empty()) {
    return invalid_argument(
        fmt::format("'{}' is no collective with algorithms; there are:{}", collective, collectives));
  }
  if (rows.empty())
    return invalid_argument(
        fmt::format("{} has no algorithm '{}'; there are:{}", collective, algorithm, algorithms));
  return rows;
}

int usage_error(std::string_view command, const Status& status) {
  fmt::print(stderr, "tutti {}: {}\n", command, status.message());
  return 2;
}

}  // namespace tutti::tool
