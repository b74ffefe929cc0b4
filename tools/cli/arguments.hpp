// Command lines: the options of a sub-command, lists of group sizes, catalogue rows. Only arguments.cpp sees
// CLI11, whose headers take seconds to compile.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/algorithms/catalog.hpp"
#include "runtime/base/status.hpp"

namespace CLI {
class App;
class Option;
class ParseError;
}  // namespace CLI

namespace tutti::tool {

// One option or flag of a command; valid as long as its parser. Every function but count() returns the option,
// so that calls can be chained.
class Argument {
 public:
  Argument(CLI::App& app, CLI::Option* option) : app_(&app), option_(option) {}

  Argument required();
  Argument show_default();  // in the help
  Argument take_last();     // where it is given several times
  Argument hide();          // from the help
  Argument excludes(Argument other);
  Argument excludes(const char* name);  // of an option added before, such as "--json"
  Argument needs(Argument other);
  Argument one_of(const std::vector<std::string>& words);
  std::size_t count() const;  // times that it was given

 private:
  CLI::App* app_;
  CLI::Option* option_;
};

// The options of one command. Names are "-n,--ranks", or "collective" for a position. Variables keep their
// value where an option is not given, and must outlive parse().
class ArgumentParser {
 public:
  // `name` is the full one: "tutti info".
  ArgumentParser(const std::string& summary, const std::string& name);
  ~ArgumentParser();
  ArgumentParser(const ArgumentParser&) = delete;
  ArgumentParser& operator=(const ArgumentParser&) = delete;

  void footer(const std::string& text);  // below the help
  Argument add_flag(const std::string& names, bool& variable, const std::string& help);
  // Variables: std::string, int, std::uint32_t, std::uint64_t, double.
  template <class Value>
  Argument add_option(const std::string& names, Value& variable, const std::string& help);
  std::size_t count(const char* name) const;  // times that the option was given

  // Parses a command's arguments (argv[0] is its name). False: the process is to end with *status (0 after
  // --help, 2 after a usage error), and all is printed already.
  bool parse(int argc, char** argv, int* status);

 private:
  std::string message_for(const CLI::ParseError& error, const std::vector<std::string>& words) const;

  std::unique_ptr<CLI::App> app_;
};

// "8", "1..64", "2,3,7..9": numbers from 1. Errors: invalid_argument.
Result<std::vector<std::uint32_t>> parse_sizes(std::string_view text);

// The rows of a collective (empty: of all) with that name (empty: all of them). Errors: invalid_argument,
// listing what there is.
Result<std::vector<const AlgorithmRow*>> select_rows(std::string_view collective, std::string_view algorithm);

// The words in one string.
template <class Words>
std::string joined(const Words& words, std::string_view separator) {
  std::string text;
  for (const auto& word : words) {
    if (!text.empty()) text += separator;
    text += word;
  }
  return text;
}

// The word of `known` that `word` was probably meant to be: it differs by two letters at most, or begins with it.
// Empty where none does.
std::string nearest_word(std::string_view word, const std::vector<std::string>& known);

// Whether a file of that name can be written; `option` is the one that names it. Errors: invalid_argument.
Status check_writable(std::string_view option, const std::string& path);

// Prints "tutti <command>: <message>" to stderr; returns 2, the exit status of a usage error.
int usage_error(std::string_view command, const Status& status);

}  // namespace tutti::tool
