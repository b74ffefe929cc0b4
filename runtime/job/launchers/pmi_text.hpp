// The texts of the PMI protocols as values: records of both versions, the process mapping, escaped keys and
// values. Knows no connection; all input comes from another process.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti::detail {

struct PmiRecord {
  std::string command;
  std::map<std::string, std::string, std::less<>> fields;

  // Empty if it is not there.
  std::string_view field(std::string_view name) const;
  // -1 if it is missing or not a number.
  int number(std::string_view name) const;
};

// PMI-1: "cmd=get_result rc=0 value=x", without the newline. Errors: invalid_argument.
Result<PmiRecord> parse_pmi1(std::string_view line);
// PMI-2: "cmd=kvs-get-response;rc=0;value=a;;b;", without the length in front; two semicolons are one of the
// text. Errors: invalid_argument.
Result<PmiRecord> parse_pmi2(std::string_view body);
// The PMI-2 form of a command, with the length in front.
std::string write_pmi2(std::string_view command,
                       const std::vector<std::pair<std::string_view, std::string_view>>& fields);

// PMI_process_mapping, "(vector,(first node,nodes,ranks on each),...)". Blocks take ranks from left to right,
// repeatedly, until all ranks have a node. Gives the node of each rank. Errors: invalid_argument.
Result<std::vector<int>> parse_process_mapping(std::string_view text, int size);

// Keys and values travel between spaces, equals signs and semicolons: everything but letters, digits and
// "_./:-" becomes ~ and two hexadecimal digits.
std::string escape_pmi(std::string_view text);
Result<std::string> unescape_pmi(std::string_view text);

}  // namespace tutti::detail
