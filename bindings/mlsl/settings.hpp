// MLSL's variables: those that libmlsl obeys, and answers to the others. Knows no communication.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bindings/mlsl/failure.hpp"

namespace tutti::mlsl {

struct Settings {
  LogLevel log_level = LogLevel::error;
  bool has_statistics = false;
  bool duplicates_groups = true;  // a data group of all ranks has operations of its own
  bool has_priority = false;
  std::size_t priority_bytes = 10000;  // gradients below are sent at once
  std::size_t large_message_bytes = std::size_t{128} << 20;
  std::size_t large_message_chunks = 4;
  bool starts_mpi = true;  // where libmpi is loaded
  bool allows_reinit = false;
};

// The value of a variable; nothing if it is not set.
using ReadVariable = std::function<std::optional<std::string>(const char* name)>;

// `answers`: a sentence for each variable that is set and has no effect. Errors: throws std::invalid_argument that
// names the variable, its value and the expected ones.
Settings read_settings(const ReadVariable& read, std::vector<std::string>& answers);
// Of this process's environment; ends the job on a mistake.
Settings read_environment(std::vector<std::string>& answers);

// N of "color=N" or "color=N,..."; nothing where no item of the list is a colour. Errors: throws
// std::invalid_argument.
std::optional<int> parse_color(const std::string& config);

}  // namespace tutti::mlsl
