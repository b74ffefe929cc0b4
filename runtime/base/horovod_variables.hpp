// Horovod's environment variables: the one table of their effect here. Knows a variable's name and syntax; the
// variables of our own that some of them set are in config.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/config.hpp"

namespace tutti {

enum class HorovodUse : std::uint8_t {
  setting,    // another spelling of a TUTTI_* variable
  launch,     // written or read where ranks are started and meet
  no_effect,  // answered where it is set
  unneeded,   // no effect, and nothing to say: Horovod's installer and launcher set it
};

// How Horovod writes a setting.
enum class HorovodSyntax : std::uint8_t {
  text,
  file,          // or DYNAMIC: none
  cpu_list,      // 0,1,12,13
  whole_number,  // also bytes
  milliseconds,  // may have a fraction
  seconds,
  log_level,
  disabling,  // a number above 0 sets the variable of ours to 0
};

struct HorovodVariable {
  std::string_view name;
  HorovodUse use = HorovodUse::no_effect;
  std::string_view default_text;  // Horovod's own; empty: unset
  std::string_view meaning;       // one line, for people who set it
  std::string_view setting = {};  // the TUTTI_* variable
  HorovodSyntax syntax = HorovodSyntax::text;
};

// In the order of docs/horovod.md.
std::span<const HorovodVariable> horovod_variables();
// Null if Horovod has none of that name.
const HorovodVariable* find_horovod_variable(std::string_view name);

// A value as the variable of ours is written; empty: it leaves that one alone. Errors: invalid_argument with the
// expectation alone.
Result<std::string> translate_horovod_value(const HorovodVariable& variable, std::string_view value);

// A value of ours that Horovod's variable `source` gives.
struct HorovodValue {
  std::string_view source;
  std::string text;  // in the syntax of the variable of ours
};
// For the TUTTI_* variable `name`, where Horovod's variable is set and well-formed; nullopt otherwise. The caller
// looks for the variable itself first: it wins.
std::optional<HorovodValue> find_horovod_value(const Environment& environment, std::string_view name);

// One sentence for each of Horovod's variables that is set to another value than its default and has no effect, or
// is malformed and therefore ignored.
std::vector<std::string> check_horovod_variables(const Environment& environment);

// The table of docs/horovod.md.
std::string describe_horovod_markdown();

}  // namespace tutti
