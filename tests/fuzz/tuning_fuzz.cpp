// Fuzz target: any bytes are either refused as a tuning file, with a place inside of them, or are one that
// can be written and read again and makes a selector.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/selection/tuning.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void forget_lines(tutti::Tuning& tuning, std::uint64_t line_count) {
  for (tutti::TuningRules& list : tuning.rules) {
    for (tutti::TuningItem& item : list.items) {
      require(item.line >= 1 && item.line <= line_count);
      item.line = 0;
    }
  }
}

std::uint64_t lines_of(std::string_view text) {
  std::uint64_t count = 1;
  for (const char c : text) count += c == '\n' ? 1 : 0;
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  auto tuning = tutti::parse_tuning(text, "F");
  if (!tuning) {
    const std::string& message = tuning.status().message();
    require(message.rfind("F line ", 0) == 0);
    char* end = nullptr;
    const unsigned long line = std::strtoul(message.c_str() + 7, &end, 10);
    require(line >= 1 && line <= lines_of(text));
    require(std::string_view(end).rfind(" column ", 0) == 0);
    const unsigned long column = std::strtoul(end + 8, nullptr, 10);
    require(column >= 1 && column <= size + 1);
    return 0;
  }
  require(tutti::Selector::make(tutti::rule_texts(*tuning, "F")).is_ok());
  const std::string written = tutti::to_text(*tuning);
  auto again = tutti::parse_tuning(written, "F");
  require(again.is_ok());
  forget_lines(*tuning, lines_of(text));
  forget_lines(*again, lines_of(written));
  require(*again == *tuning);
  return 0;
}
