// JSON that people write, with errors that name the place. Knows no format.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "runtime/base/status.hpp"

namespace tutti::tool {

// Errors: invalid_argument, "line 3 column 7: ...".
inline Result<nlohmann::json> parse_json(std::string_view text) {
  std::size_t error_byte = 0;
  try {
    return nlohmann::json::parse(text.begin(), text.end());
  } catch (const nlohmann::json::parse_error& error) {
    error_byte = error.byte;  // from 1; of the last byte that was read
  }
  const std::string_view before = text.substr(0, std::min(text.size(), error_byte == 0 ? 0 : error_byte - 1));
  const std::size_t newline = before.rfind('\n');
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t column = 1 + (newline == before.npos ? before.size() : before.size() - newline - 1);
  return invalid_argument(fmt::format(
      "line {} column {}: this is no JSON, which has no comments and no comma before ] or }}", line, column));
}

}  // namespace tutti::tool
