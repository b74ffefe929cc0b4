// The user documentation of configuration variables, rendered from the table. Knows no variable by name, so
// that a new row needs no change here.
#include <fmt/format.h>

#include <iterator>

#include "runtime/base/config.hpp"
#include "runtime/base/horovod_variables.hpp"

namespace tutti {
namespace {

std::string_view type_name(VariableType type) {
  switch (type) {
    case VariableType::flag:
      return "flag";
    case VariableType::integer:
      return "integer";
    case VariableType::size:
      return "size";
    case VariableType::duration:
      return "duration";
    case VariableType::enumeration:
      return "word";
    case VariableType::text:
      return "text";
    case VariableType::rule:
      return "rule";
  }
  return "";
}

constexpr std::string_view kIntroduction = R"(# Environment variables

This page is generated from the table in `runtime/base/config.hpp`; a test compares the two.
`tutti info --env` prints the same table with the values in effect.

A variable that is set but malformed is an error that names it; an unknown `TUTTI_*` name is a warning with
the nearest known one. A variable set to nothing counts as unset.

- *flag*: `on` or `off` (also `1`/`0`, `yes`/`no`, `true`/`false`)
- *integer*: decimal
- *size*: bytes, with `k`, `m` or `g` for powers of 1024
- *duration*: a number with `us`, `ms`, `s` or `min`; a bare number is seconds
- *word*: one of the values listed
- *rule*: `name-or-number[(param=value,...)][:condition,...]`, items separated by `;`; the first match wins

| variable | type | values | default | meaning |
|---|---|---|---|---|
)";

constexpr std::string_view kHorovodIntroduction = R"(
## Horovod's variables

These are read where the `TUTTI_*` variable beside them is not set. [horovod.md](horovod.md) lists all of Horovod's
variables, also those without an effect here. A malformed one is ignored with a warning.

| variable | read as | meaning |
|---|---|---|
)";

// A bar would end the cell.
std::string cell(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}
std::string code_cell(std::string_view text) { return text.empty() ? "" : "`" + cell(text) + "`"; }

}  // namespace

std::string describe_environment_text(const Environment& environment) {
  fmt::memory_buffer page;
  const auto out = std::back_inserter(page);
  for (const Variable& variable : kVariables) {
    const auto [name, text] = find_value(environment, variable.name);
    const std::string source = name == variable.name ? "set"
                               : !name.empty()       ? fmt::format("set by {}", name)
                               : text.empty()        ? "not set"
                                                     : "default";
    fmt::format_to(out, "{}={} ({})\n", variable.name,
                   variable.is_secret && !name.empty() ? "(hidden)" : text, source);
    fmt::format_to(out, "    {}", variable.help);
    if (!variable.values.empty()) fmt::format_to(out, " [{}]", variable.values);
    fmt::format_to(out, "\n");
  }
  for (const HorovodVariable& variable : horovod_variables()) {
    if (const auto value = environment.find(variable.name))
      fmt::format_to(out, "{}={} (set)\n    {}\n", variable.name, *value, variable.meaning);
  }
  return fmt::to_string(page);
}

std::string describe_environment_markdown() {
  std::string page(kIntroduction);
  for (const Variable& variable : kVariables) {
    page += fmt::format("| `{}` | {} | {} | {} | {} |\n", variable.name, type_name(variable.type),
                        code_cell(variable.values), code_cell(variable.default_text), cell(variable.help));
  }
  page += kHorovodIntroduction;
  for (const HorovodVariable& variable : horovod_variables()) {
    if (variable.use == HorovodUse::setting)
      page += fmt::format("| `{}` | `{}` | {} |\n", variable.name, variable.setting, cell(variable.meaning));
  }
  return page;
}

}  // namespace tutti
