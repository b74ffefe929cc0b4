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

Argument Argument::required() {
  option_->required();
  return *this;
}

Argument Argument::show_default() {
  option_->capture_default_str();
  return *this;
}

Argument Argument::take_last() {
  option_->take_last();
  return *this;
}

Argument Argument::hide() {
  option_->group("");
  return *this;
}

Argument Argument::excludes(Argument other) {
  option_->excludes(other.option_);
  return *this;
}

Argument Argument::excludes(const char* name) {
  option_->excludes(app_->get_option(name));
  return *this;
}

Argument Argument::needs(Argument other) {
  option_->needs(other.option_);
  return *this;
}

Argument Argument::one_of(const std::vector<std::string>& words) {
  option_->check(CLI::IsMember(words));
  return *this;
}

std::size_t Argument::count() const { return option_->count(); }

ArgumentParser::ArgumentParser(const std::string& summary, const std::string& name)
    : app_(std::make_unique<CLI::App>(summary, name)) {}

ArgumentParser::~ArgumentParser() = default;

void ArgumentParser::footer(const std::string& text) { app_->footer(text); }

Argument ArgumentParser::add_flag(const std::string& names, bool& variable, const std::string& help) {
  return {*app_, app_->add_flag(names, variable, help)};
}

template <class Value>
Argument ArgumentParser::add_option(const std::string& names, Value& variable, const std::string& help) {
  return {*app_, app_->add_option(names, variable, help)};
}
template Argument ArgumentParser::add_option(const std::string&, std::string&, const std::string&);
template Argument ArgumentParser::add_option(const std::string&, int&, const std::string&);
template Argument ArgumentParser::add_option(const std::string&, std::uint32_t&, const std::string&);
template Argument ArgumentParser::add_option(const std::string&, std::uint64_t&, const std::string&);
template Argument ArgumentParser::add_option(const std::string&, double&, const std::string&);
template Argument ArgumentParser::add_option(const std::string&, std::vector<std::string>&,
                                             const std::string&);

std::size_t ArgumentParser::count(const char* name) const { return app_->count(name); }

bool ArgumentParser::parse(int argc, char** argv, int* status) {
  try {
    app_->parse(argc, argv);
    return true;
  } catch (const CLI::Success& help) {
    *status = app_->exit(help);
  } catch (const CLI::ParseError& error) {
    const std::string& name = app_->get_name();
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
