// Reads the YAML of Horovod's configuration files. Knows no flag; see horovod_config.hpp.
#include "tools/cli/run/horovod_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

namespace tutti {
namespace {

constexpr std::string_view kBlanks = " \t\r";

std::string_view trim(std::string_view text) {
  const std::size_t first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
}

bool is_blank(char c) { return kBlanks.find(c) != std::string_view::npos; }

// Without what a # begins, at the start or after a blank.
std::string_view without_comment(std::string_view line) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '#' && (i == 0 || is_blank(line[i - 1]))) return line.substr(0, i);
  }
  return line;
}

bool is_key(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// 'it''s' or "plain"; nothing may follow but a comment.
Result<std::string> parse_quoted(std::string_view text) {
  const char quote = text.front();
  std::string value;
  for (std::size_t i = 1; i < text.size(); ++i) {
    if (quote == '"' && text[i] == '\\')
      return invalid_argument("a backslash in quotes is not read; use '...'");
    if (text[i] != quote) {
      value += text[i];
    } else if (quote == '\'' && i + 1 < text.size() && text[i + 1] == quote) {
      value += text[i++];
    } else if (trim(without_comment(text.substr(i + 1))).empty()) {
      return value;
    } else {
      return invalid_argument("text follows the closing quote");
    }
  }
  return invalid_argument("a quote is not closed");
}

// nullopt: null.
Result<std::optional<std::string>> parse_value(std::string_view text) {
  text = trim(text);
  if (!text.empty() && (text.front() == '"' || text.front() == '\'')) {
    auto value = parse_quoted(text);
    if (!value) return value.status();
    return std::optional<std::string>(*std::move(value));
  }
  // `text` was trimmed, so a comment that follows the colon begins at its front.
  text = trim(without_comment(text));
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL")
    return std::optional<std::string>();
  constexpr std::string_view kOther = "{}[]&*!|>%@`,?";
  if (kOther.find(text.front()) != std::string_view::npos || text.starts_with("- ") || text == "-" ||
      text.find(": ") != std::string_view::npos)
    return invalid_argument("expected a plain value, such as 32, true or text");
  return std::optional<std::string>(text);
}

class Reader {
 public:
  Status read(std::string_view line, int number) {
    if (trim(without_comment(line)).empty() || trim(line) == "---") return {};
    const std::size_t indent = line.find_first_not_of(' ');
    if (line[indent] == '\t') return invalid_argument("a tab indents it; use blanks");
    const std::string_view rest = line.substr(indent);
    const std::size_t colon = rest.find(':');
    const std::string_view name = trim(rest.substr(0, colon));
    if (colon == std::string_view::npos || !is_key(name) ||
        (colon + 1 < rest.size() && !is_blank(rest[colon + 1])))
      return invalid_argument("expected 'key: value', or 'section:'");
    auto value = parse_value(rest.substr(colon + 1));
    if (!value) return value.status();
    if (indent > 0) return add_inside(indent, name, *std::move(value), number);
    section_ = value->has_value() ? "" : std::string(name);
    indent_ = 0;
    if (!value->has_value()) return {};
    return add(std::string(name), **std::move(value), number);
  }
  std::vector<HorovodSetting> take() { return std::move(settings_); }

 private:
  Status add_inside(std::size_t indent, std::string_view name, std::optional<std::string> value, int number) {
    if (section_.empty()) return invalid_argument("it is indented, and no section is above it");
    if (indent_ != 0 && indent != indent_)
      return invalid_argument("settings of a section have one indentation, and none below them");
    indent_ = indent;
    if (!value) return {};
    return add(fmt::format("{}.{}", section_, name), *std::move(value), number);
  }
  Status add(std::string key, std::string value, int number) {
    for (const HorovodSetting& other : settings_) {
      if (other.key == key)
        return invalid_argument(fmt::format("{} is set in line {}, too", key, other.line));
    }
    settings_.push_back({std::move(key), std::move(value), number});
    return {};
  }

  std::vector<HorovodSetting> settings_;
  std::string section_;
  std::size_t indent_ = 0;  // of the settings of this section; 0: none yet
};

}  // namespace

Result<std::vector<HorovodSetting>> parse_horovod_config(std::string_view text) {
  Reader reader;
  for (int number = 1; !text.empty(); ++number) {
    const std::size_t newline = text.find('\n');
    const std::string_view line = text.substr(0, newline);
    text = newline == std::string_view::npos ? std::string_view() : text.substr(newline + 1);
    if (const Status status = reader.read(line, number); !status)
      return status.with_context(fmt::format("line {}", number));
  }
  return reader.take();
}

}  // namespace tutti
