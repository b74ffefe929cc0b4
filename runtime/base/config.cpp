// Parsing of configuration variables through the table.
// Knows no variable by name; config_names.cpp has the unknown ones, config_text.cpp the pages for people.
#include "runtime/base/config.hpp"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <utility>

#include "runtime/base/horovod_variables.hpp"

namespace tutti {
namespace {

bool is_word_of(std::string_view words, std::string_view text) {
  while (!words.empty()) {
    const std::size_t bar = words.find('|');
    if (words.substr(0, bar) == text) return true;
    words = bar == std::string_view::npos ? std::string_view() : words.substr(bar + 1);
  }
  return false;
}

std::string in_words(std::string_view words) {
  std::string text;
  for (const char c : words) {
    if (c == '|') {
      text += ", ";
    } else {
      text += c;
    }
  }
  return text;
}

std::optional<bool> parse_flag(std::string_view text) {
  if (is_word_of("1|on|yes|true", text)) return true;
  if (is_word_of("0|off|no|false", text)) return false;
  return std::nullopt;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string expected_of(const Variable& variable) {
  std::string text;
  switch (variable.type) {
    case VariableType::flag:
      return "on or off";
    case VariableType::enumeration:
      return "one of " + in_words(variable.values);
    case VariableType::integer:
      text = "an integer of at least " + std::to_string(variable.minimum);
      break;
    case VariableType::size:
      text = "a size in bytes such as 64k, 8m or 1g";
      break;
    case VariableType::duration:
      text = "a duration such as 500us, 10ms, 30s or 5min";
      break;
    case VariableType::text:
    case VariableType::rule:
      return "text";
  }
  return variable.values.empty() ? text : text + ", or " + in_words(variable.values);
}

// `name`: by which the variable is set.
Status malformed(const Variable& variable, std::string_view name, std::string_view text) {
  return invalid_argument(std::string(name) + "='" + (variable.is_secret ? "..." : std::string(text)) +
                          "' is not valid: expected " + expected_of(variable));
}

const Variable& require(std::string_view name, VariableType type) {
  const Variable* variable = find_variable(name);
  TUTTI_ASSERT(variable != nullptr, "only variables of the table are read");
  TUTTI_ASSERT(variable->type == type, "read as the type that the table says");
  return *variable;
}

template <class T, class Parse>
Result<std::optional<T>> get_number(const Environment& environment, const Variable& variable, Parse parse) {
  const auto [name, text] = find_value(environment, variable.name);
  if (text.empty() || is_word_of(variable.values, text)) return std::optional<T>();
  const std::optional<T> value = parse(std::string_view(text));
  if (!value) return malformed(variable, name, text);
  return value;
}

// Splits "12.5ms" into a finite number >= 0 and "ms"; false if there is no number.
bool split_number(std::string_view text, double& number, std::string_view& unit) {
  const auto [end, error] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || std::signbit(number)) return false;
  unit = text.substr(static_cast<std::size_t>(end - text.data()));
  return true;
}

}  // namespace

Environment Environment::of_process() {
  Environment result;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    result.values_.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return result;
}

std::optional<std::string_view> Environment::find(std::string_view name) const {
  const auto found = values_.find(name);
  if (found == values_.end() || found->second.empty()) return std::nullopt;
  return std::string_view(found->second);
}

std::optional<std::uint64_t> parse_size(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc()) return std::nullopt;
  std::string_view unit = text.substr(static_cast<std::size_t>(end - text.data()));
  int shift = 0;
  if (!unit.empty()) {
    const char prefix = unit.front();
    if (prefix == 'k' || prefix == 'K') shift = 10;
    if (prefix == 'm' || prefix == 'M') shift = 20;
    if (prefix == 'g' || prefix == 'G') shift = 30;
    if (shift != 0) unit.remove_prefix(1);
    if (unit == "b" || unit == "B") unit.remove_prefix(1);
  }
  if (!unit.empty() || value > (std::numeric_limits<std::uint64_t>::max() >> shift)) return std::nullopt;
  return value << shift;
}

std::optional<std::chrono::nanoseconds> parse_duration(std::string_view text) {
  double number = 0;
  std::string_view unit;
  if (!split_number(text, number, unit)) return std::nullopt;
  double unit_nanoseconds = 0;
  if (unit == "us") unit_nanoseconds = 1e3;
  if (unit == "ms") unit_nanoseconds = 1e6;
  if (unit == "s" || unit.empty()) unit_nanoseconds = 1e9;
  if (unit == "min") unit_nanoseconds = 60e9;
  const double nanoseconds = number * unit_nanoseconds;
  // A century is longer than any wait, and adding it to a clock does not overflow.
  constexpr double kCentury = 100.0 * 366 * 24 * 3600 * 1e9;
  if (unit_nanoseconds == 0 || nanoseconds > kCentury) return std::nullopt;
  return std::chrono::nanoseconds(static_cast<std::int64_t>(std::llround(nanoseconds)));
}

const Variable* find_variable(std::string_view name) {
  const auto* found = std::find_if(std::begin(kVariables), std::end(kVariables),
                                   [&](const Variable& variable) { return variable.name == name; });
  return found == std::end(kVariables) ? nullptr : found;
}

ValueInEffect find_value(const Environment& environment, std::string_view name) {
  if (const auto value = environment.find(name)) return {name, std::string(*value)};
  for (const Variable& other : kVariables) {
    if (other.alias_of != name) continue;
    if (const auto value = environment.find(other.name)) return {other.name, std::string(*value)};
  }
  if (auto value = find_horovod_value(environment, name)) return {value->source, std::move(value->text)};
  const Variable* const variable = find_variable(name);
  TUTTI_ASSERT(variable != nullptr, "only variables of the table are read");
  return {{}, std::string(variable->default_text)};
}

Result<bool> get_flag(const Environment& environment, std::string_view name) {
  const Variable& variable = require(name, VariableType::flag);
  const auto [spelling, text] = find_value(environment, name);
  const std::optional<bool> value = parse_flag(text);
  if (!value) return malformed(variable, spelling, text);
  return *value;
}

Result<std::optional<std::int64_t>> get_integer(const Environment& environment, std::string_view name) {
  const Variable& variable = require(name, VariableType::integer);
  return get_number<std::int64_t>(environment, variable, [&](std::string_view text) {
    const auto value = parse_integer(text);
    return value && *value >= variable.minimum ? value : std::nullopt;
  });
}

Result<std::optional<std::uint64_t>> get_size(const Environment& environment, std::string_view name) {
  return get_number<std::uint64_t>(environment, require(name, VariableType::size), parse_size);
}

Result<std::optional<std::chrono::nanoseconds>> get_duration(const Environment& environment,
                                                             std::string_view name) {
  return get_number<std::chrono::nanoseconds>(environment, require(name, VariableType::duration),
                                              parse_duration);
}

Result<std::string> get_enum(const Environment& environment, std::string_view name) {
  const Variable& variable = require(name, VariableType::enumeration);
  auto [spelling, text] = find_value(environment, name);
  if (!is_word_of(variable.values, text)) return malformed(variable, spelling, text);
  return std::move(text);
}

Result<std::optional<std::string>> get_text(const Environment& environment, std::string_view name) {
  const Variable* variable = find_variable(name);
  TUTTI_ASSERT(variable != nullptr, "only variables of the table are read");
  TUTTI_ASSERT(variable->type == VariableType::text || variable->type == VariableType::rule,
               "read as the type that the table says");
  std::string text = find_value(environment, name).text;
  if (text.empty()) return std::optional<std::string>();
  return std::optional<std::string>(std::move(text));
}

bool is_set(const Environment& environment, std::string_view name) {
  return !find_value(environment, name).name.empty();
}

Status check_values(const Environment& environment) {
  for (const Variable& variable : kVariables) {
    if (!environment.find(variable.name)) continue;
    switch (variable.type) {
      case VariableType::flag:
        TUTTI_RETURN_IF_ERROR(get_flag(environment, variable.name).status());
        break;
      case VariableType::integer:
        TUTTI_RETURN_IF_ERROR(get_integer(environment, variable.name).status());
        break;
      case VariableType::size:
        TUTTI_RETURN_IF_ERROR(get_size(environment, variable.name).status());
        break;
      case VariableType::duration:
        TUTTI_RETURN_IF_ERROR(get_duration(environment, variable.name).status());
        break;
      case VariableType::enumeration:
        TUTTI_RETURN_IF_ERROR(get_enum(environment, variable.name).status());
        break;
      case VariableType::text:
      case VariableType::rule:
        break;  // their readers know the grammar
    }
  }
  return {};
}

}  // namespace tutti
