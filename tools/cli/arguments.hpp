// What several sub-commands read from their arguments: lists of group sizes, catalogue rows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/algorithms/catalog.hpp"
#include "runtime/base/status.hpp"

namespace CLI {
class App;
}

namespace tutti::tool {

// Parses a command's arguments (argv[0] is its name). False: the process is to end with *status (0 after
// --help, 2 after a usage error), and all is printed already.
bool parse_arguments(CLI::App& app, int argc, char** argv, int* status);

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

// Prints "tutti <command>: <message>" to stderr; returns 2, the exit status of a usage error.
int usage_error(std::string_view command, const Status& status);

}  // namespace tutti::tool
