// Parses and writes the texts of PMI. Knows no connection.
#include "runtime/job/launchers/pmi_text.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <optional>

namespace tutti::detail {
namespace {

constexpr char kEscape = '~';
constexpr int kMaxNode = 1 << 20;

bool is_plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("_./:-").find(c) != std::string_view::npos;
}

std::optional<int> number_of(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// "name=value" into the record; the first one has to be the command.
Status add_field(std::string_view item, PmiRecord& record) {
  const std::size_t equals = item.find('=');
  if (equals == std::string_view::npos || equals == 0) {
    return invalid_argument(fmt::format("PMI: '{}' is not name=value", item));
  }
  const std::string_view name = item.substr(0, equals), value = item.substr(equals + 1);
  if (record.command.empty()) {
    if (name != "cmd" || value.empty()) return invalid_argument("PMI: a record that begins with no command");
    record.command = value;
    return {};
  }
  record.fields[std::string(name)] = value;
  return {};
}

Result<PmiRecord> finished(PmiRecord record) {
  if (record.command.empty()) return invalid_argument("PMI: an empty record");
  return record;
}

using NodeBlock = std::array<int, 3>;  // first node, nodes, ranks on each

// "0,1,1"
std::optional<NodeBlock> parse_node_block(std::string_view text) {
  NodeBlock block{};
  for (std::size_t i = 0; i < block.size(); ++i) {
    const std::size_t comma = text.find(',');
    const std::optional<int> value = number_of(text.substr(0, comma));
    const bool is_last = comma == std::string_view::npos;
    if (is_last != (i == 2) || !value || *value < 0 || *value > kMaxNode) return std::nullopt;
    block[i] = *value;
    if (!is_last) text.remove_prefix(comma + 1);
  }
  if (block[1] == 0 || block[2] == 0) return std::nullopt;  // would place no rank, for ever
  return block;
}

// "(vector,(0,1,1),...)"
std::optional<std::vector<NodeBlock>> parse_node_blocks(std::string_view text) {
  constexpr std::string_view kPrefix = "(vector";
  if (!text.starts_with(kPrefix) || !text.ends_with(')')) return std::nullopt;
  text = text.substr(kPrefix.size(), text.size() - kPrefix.size() - 1);
  std::vector<NodeBlock> blocks;
  while (!text.empty()) {
    const std::size_t end = text.find(')');
    if (!text.starts_with(",(") || end == std::string_view::npos) return std::nullopt;
    const std::optional<NodeBlock> block = parse_node_block(text.substr(2, end - 2));
    if (!block) return std::nullopt;
    blocks.push_back(*block);
    text = text.substr(end + 1);
  }
  if (blocks.empty()) return std::nullopt;
  return blocks;
}

}  // namespace

std::string_view PmiRecord::field(std::string_view name) const {
  const auto found = fields.find(name);
  return found == fields.end() ? std::string_view() : std::string_view(found->second);
}

int PmiRecord::number(std::string_view name) const { return number_of(field(name)).value_or(-1); }

Result<PmiRecord> parse_pmi1(std::string_view line) {
  PmiRecord record;
  while (!line.empty()) {
    const std::size_t space = line.find(' ');
    if (space != 0) TUTTI_RETURN_IF_ERROR(add_field(line.substr(0, space), record));
    line = space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
  }
  return finished(std::move(record));
}

Result<PmiRecord> parse_pmi2(std::string_view body) {
  PmiRecord record;
  std::string item;
  for (std::size_t i = 0; i < body.size(); ++i) {
    if (body[i] != ';') {
      item += body[i];
    } else if (i + 1 < body.size() && body[i + 1] == ';') {
      item += ';';
      ++i;
    } else {
      TUTTI_RETURN_IF_ERROR(add_field(item, record));
      item.clear();
    }
  }
  if (!item.empty()) return invalid_argument("PMI-2: a record that does not end with a semicolon");
  return finished(std::move(record));
}

std::string write_pmi2(std::string_view command,
                       const std::vector<std::pair<std::string_view, std::string_view>>& fields) {
  std::string body;
  const auto add = [&body](std::string_view name, std::string_view value) {
    for (const std::string_view text : {name, std::string_view("="), value}) {
      for (const char c : text) body.append(c == ';' ? 2 : 1, c);
    }
    body += ';';
  };
  add("cmd", command);
  for (const auto& [name, value] : fields) add(name, value);
  return fmt::format("{:6}{}", body.size(), body);
}

Result<std::vector<int>> parse_process_mapping(std::string_view text, int size) {
  const std::optional<std::vector<NodeBlock>> blocks = parse_node_blocks(text);
  if (!blocks || size < 0)
    return invalid_argument(fmt::format("PMI_process_mapping='{}': expected (vector,(0,1,1),...)", text));
  std::vector<int> nodes;
  nodes.reserve(static_cast<std::size_t>(size));
  const auto is_full = [&] { return nodes.size() == static_cast<std::size_t>(size); };
  while (!is_full()) {
    for (const auto& [first, count, ranks] : *blocks) {
      for (int node = first; node < first + count; ++node) {
        for (int i = 0; i < ranks && !is_full(); ++i) nodes.push_back(node);
        if (is_full()) return nodes;
      }
    }
  }
  return nodes;
}

std::string escape_pmi(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (is_plain(c)) {
      result += c;
    } else {
      result += fmt::format("{}{:02x}", kEscape, static_cast<unsigned char>(c));
    }
  }
  return result;
}

Result<std::string> unescape_pmi(std::string_view text) {
  std::string result;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != kEscape) {
      result += text[i];
      continue;
    }
    unsigned value = 0;
    const std::string_view digits = text.substr(i + 1, 2);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (digits.size() != 2 || error != std::errc{} || end != digits.data() + 2) {
      return invalid_argument("PMI: a value that was not written by tutti");
    }
    result += static_cast<char>(value);
    i += 2;
  }
  return result;
}

}  // namespace tutti::detail
