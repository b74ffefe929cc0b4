// Parsing of arguments that several sub-commands share.
#include "tools/cli/arguments.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <type_traits>

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

// CLI11 names neither the kind of number that it wants nor the largest.
template <class Value>
std::string why_no_number(const std::string& text) {
  Value value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size()) return "";
  if constexpr (std::is_floating_point_v<Value>) {
    return fmt::format("expected a number such as 0.5, got '{}'", text);
  } else {
    return fmt::format("expected a whole number from {} to {}, got '{}'", std::numeric_limits<Value>::min(),
                       std::numeric_limits<Value>::max(), text);
  }
}

// Letters to change, add or leave out to come from one word to the other.
std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < from.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i + 1;
    for (std::size_t j = 0; j < to.size(); ++j) {
      const std::size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
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
  option_->check(
      [words](const std::string& text) {
        const bool is_known = std::find(words.begin(), words.end(), text) != words.end();
        return is_known ? "" : fmt::format("expected one of {}, got '{}'", fmt::join(words, ", "), text);
      },
      fmt::format("{{{}}}", fmt::join(words, ",")));
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
  CLI::Option* const option = app_->add_option(names, variable, help);
  if constexpr (std::is_arithmetic_v<Value>) option->check(why_no_number<Value>, "");
  return {*app_, option};
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
    const std::string message = message_for(error, std::vector<std::string>(argv + 1, argv + argc));
    fmt::print(stderr, "{}: {}\nTry '{} --help'.\n", name, message, name);
    *status = 2;
  }
  return false;
}

// CLI11's own messages do not say what to type instead.
std::string ArgumentParser::message_for(const CLI::ParseError& error,
                                        const std::vector<std::string>& words) const {
  std::string text = error.what();
  const std::string option = text.substr(0, text.find(':'));
  switch (static_cast<CLI::ExitCodes>(error.get_exit_code())) {
    case CLI::ExitCodes::ArgumentMismatch:
      return fmt::format("{}: a value must follow", option);
    case CLI::ExitCodes::ExcludesError:
      return text + "; give one of them";
    case CLI::ExitCodes::ExtrasError:
      break;
    default:
      return text;
  }
  // remaining() has the words in the order of the command line only where there is one.
  const auto remaining = app_->remaining();
  const auto is_extra = [&](const std::string& word) {
    return std::find(remaining.begin(), remaining.end(), word) != remaining.end();
  };
  const auto first = std::find_if(words.begin(), words.end(), is_extra);
  const std::string& word = first == words.end() ? remaining.front() : *first;
  if (!word.starts_with('-')) return fmt::format("'{}' is one argument too many", word);
  std::vector<std::string> known;
  for (const CLI::Option* it : app_->get_options())
    for (const std::string& name : it->get_lnames())
      if (!it->get_group().empty()) known.push_back("--" + name);
  const std::string nearest = nearest_word(word, known);
  return fmt::format("there is no option '{}'{}", word,
                     nearest.empty() ? "" : fmt::format("; did you mean {}?", nearest));
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

std::string nearest_word(std::string_view word, const std::vector<std::string>& known) {
  constexpr std::size_t kMostLetters = 2;
  std::string nearest;
  std::size_t fewest = kMostLetters + 1;
  for (const std::string& candidate : known) {
    const bool is_start = word.size() > kMostLetters && candidate.starts_with(word);
    const std::size_t letters = is_start ? 1 : distance(word, candidate);
    // Of a short word nothing would be left.
    if (letters >= fewest || letters + 1 >= word.size()) continue;
    nearest = candidate;
    fewest = letters;
  }
  return nearest;
}

Status check_writable(std::string_view option, const std::string& path) {
  const std::size_t slash = path.find_last_of('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  const bool is_there = ::access(path.c_str(), F_OK) == 0;
  const std::string& place = is_there ? path : folder;
  struct ::stat about = {};
  const bool is_folder = is_there && ::stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
  if (is_folder) errno = EISDIR;
  if (!is_folder && ::access(place.c_str(), W_OK) == 0) return {};
  return invalid_argument(fmt::format("{} {}: cannot write to {} ({}); name a file in a folder of yours",
                                      option, path, place, std::strerror(errno)));
}

int usage_error(std::string_view command, const Status& status) {
  fmt::print(stderr, "tutti {}: {}\n", command, status.message());
  return 2;
}

}  // namespace tutti::tool
