// One option of `tutti run`, as its parser, its help and docs/horovod.md read it. Knows no process.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "runtime/base/status.hpp"
#include "tools/cli/run/run.hpp"

namespace tutti {

struct RunFlag {
  std::string_view names;  // separated by blanks; people see the first
  int value_count = 1;
  // `value`: its values, with blanks between them, or `preset`. Errors: invalid_argument with the expectation alone.
  Status (*apply)(RunOptions& options, const RunFlag& flag, std::string_view value) = nullptr;
  std::string_view meaning = {};     // one line; empty: that of the variable
  std::string_view variable = {};    // of Horovod, which carries the value to the ranks
  std::string_view preset = {};      // of a flag that takes no value
  std::string_view config_key = {};  // "section.key" in a file of --config-file
};

// Of a flag that takes no value.
template <bool RunOptions::*Member, bool Value = true>
Status set_flag(RunOptions& options, const RunFlag&, std::string_view) {
  options.*Member = Value;
  return {};
}

std::string_view first_name(const RunFlag& flag);
std::string_view meaning_of(const RunFlag& flag);
// Calls `use` with each name.
template <class Use>
void for_each_name(const RunFlag& flag, Use use) {
  for (std::string_view rest = flag.names; !rest.empty();) {
    const std::string_view name = rest.substr(0, rest.find(' '));
    use(name);
    rest.remove_prefix(std::min(name.size() + 1, rest.size()));
  }
}

// The whole file. Errors: invalid_argument.
Result<std::string> read_text(const std::string& path);

// Those of `tutti run` itself, and those of horovodrun that it takes, too.
std::span<const RunFlag> own_flags();
std::span<const RunFlag> horovod_flags();

// The flag for a setting of a configuration file, and its value there. Errors: invalid_argument with the
// expectation alone. A null flag: Horovod has no such setting.
struct ConfiguredFlag {
  const RunFlag* flag = nullptr;
  std::string value;
};
Result<ConfiguredFlag> find_configured_flag(std::string_view key, std::string_view value);

// A line for each of horovodrun's flags, for its help.
std::string describe_horovod_flags();
// The table of docs/horovod.md.
std::string describe_horovod_flags_markdown();

}  // namespace tutti
