// The text of messages between parts of an elastic job. See part_messages.hpp.
#include "tools/cli/run/part_messages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/base/ascii.hpp"

namespace tutti {
namespace {

constexpr char kRecordSeparator = '\x1e';
constexpr std::size_t kMaxBytes = std::size_t{1} << 17U;  // an invitation is the longest message
constexpr std::array<std::string_view, 8> kWords = {"start",   "leave",  "stop",  "invitation",
                                                    "waiting", "member", "ended", "here"};

std::string_view take_word(std::string_view& text) {
  const std::size_t blank = text.find(' ');
  const std::string_view word = text.substr(0, blank);
  text = blank == std::string_view::npos ? std::string_view() : text.substr(blank + 1);
  return word;
}

}  // namespace

std::string to_text(const PartMessage& message) {
  std::string text = fmt::format("{} {} {} {}", kWords[static_cast<std::size_t>(message.kind)], message.slot,
                                 message.number, message.text);
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

std::optional<PartMessage> parse_part_message(std::string_view line) {
  const auto word = std::find(kWords.begin(), kWords.end(), take_word(line));
  const auto slot = parse_number<int>(take_word(line)), number = parse_number<int>(take_word(line));
  if (word == kWords.end() || !slot || !number || *slot < 0) return std::nullopt;
  return PartMessage{static_cast<PartMessage::Kind>(word - kWords.begin()), *slot, *number,
                     std::string(line)};
}

std::string mark_message(const PartMessage& message, std::string_view job_id) {
  return fmt::format("{}tutti {} {}", kRecordSeparator, job_id, to_text(message));
}

PartMessageReader::PartMessageReader(std::string_view job_id)
    : mark_(fmt::format("{}tutti {} ", kRecordSeparator, job_id)) {}

std::string PartMessageReader::feed(std::string_view bytes, std::vector<PartMessage>& messages) {
  std::string text = std::exchange(kept_, {}) + std::string(bytes), rest;
  std::string_view left = text;
  for (std::size_t at = 0; (at = left.find(kRecordSeparator)) != std::string_view::npos;) {
    rest += left.substr(0, at);
    left.remove_prefix(at);
    const std::string_view begun = left.substr(0, mark_.size());
    const std::size_t end = left.find('\n');
    if (!mark_.starts_with(begun) || (end == std::string_view::npos && left.size() > kMaxBytes)) {
      rest += kRecordSeparator;
      left.remove_prefix(1);
    } else if (end == std::string_view::npos) {
      kept_ = left;
      return rest;
    } else {
      if (auto message = parse_part_message(left.substr(mark_.size(), end - mark_.size())))
        messages.push_back(*std::move(message));
      left.remove_prefix(end + 1);
    }
  }
  return rest += left;
}

}  // namespace tutti
