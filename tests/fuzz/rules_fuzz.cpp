// Fuzz target: any bytes are either refused as a rule text, with a column inside of it, or are rules that
// match and choose consistently.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "runtime/selection/rules.hpp"
#include "runtime/selection/selection.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

constexpr std::uint64_t kBytes[] = {0, 1, 4095, 4096, 65536, 1U << 20U, std::uint64_t{1} << 40U, ~0ULL};
constexpr std::uint32_t kSizes[] = {1, 2, 5, 8, 64, 1000};

// Those of GPUs' buffers are for calls on these alone.
enum class Buffers : std::uint8_t { any, on_host };

// The first item that matches, found without match().
const tutti::RuleItem* first_matching(const tutti::RuleList& rules, Buffers buffers, std::uint64_t bytes,
                                      std::uint32_t size) {
  for (const tutti::RuleItem& item : rules) {
    if (buffers == Buffers::on_host && item.engine) continue;
    bool matches = item.conditions.empty();
    for (const tutti::RuleCondition& c : item.conditions) {
      require(c.min_bytes <= c.max_bytes && c.min_size <= c.max_size);
      matches = matches ||
                (c.min_bytes <= bytes && bytes <= c.max_bytes && c.min_size <= size && size <= c.max_size);
    }
    if (matches) return &item;
  }
  return nullptr;
}

void check_on_host(const tutti::Selector& selector, tutti::Question q, const tutti::RuleList& rules) {
  const tutti::RuleItem* item = first_matching(rules, Buffers::on_host, q.bytes, q.size);
  const auto chosen = selector.choose(q);
  if (!chosen) {
    require(!chosen.status().message().empty());
    return;
  }
  const bool is_ours = item != nullptr && item->row != nullptr;
  require(!chosen->engine && chosen->is_forced == is_ours);
  if (is_ours) require(chosen->row == item->row);
  for (const tutti::ParamRow& param : chosen->row->params) {
    const std::uint32_t value = chosen->params.*(param.field);
    require(value >= param.min_value && value <= param.max_value);
  }
}

// Without a rule nothing is chosen: whoever carries the call chooses.
void check_on_device(const tutti::Selector& selector, tutti::Question q, const tutti::RuleList& rules) {
  const tutti::RuleItem* item = first_matching(rules, Buffers::any, q.bytes, q.size);
  q.is_device = true;
  const auto chosen = selector.choose(q);
  if (!chosen) {
    require(!chosen.status().message().empty());
    return;
  }
  require(chosen->is_made() == (item != nullptr && item->is_choice()));
  if (chosen->is_made()) require(chosen->engine == item->engine && chosen->row == item->row);
}

void check(tutti::Collective collective, std::string_view text) {
  const auto rules = tutti::parse_rules(collective, text);
  const auto selector = tutti::Selector::make({{collective, "fuzz", std::string(text)}});
  require(rules.is_ok() == selector.is_ok());
  if (!rules) {
    const std::string& message = rules.status().message();
    require(message.rfind("column ", 0) == 0);
    const unsigned long column = std::strtoul(message.c_str() + 7, nullptr, 10);
    require(column >= 1 && column <= text.size() + 1);
    return;
  }
  require(!rules->empty());
  for (const tutti::RuleItem& item : *rules) {
    require(item.column >= 1 && item.column <= text.size());
    require(item.row == nullptr || item.row->collective == collective);
  }
  for (const std::uint64_t bytes : kBytes) {
    for (const std::uint32_t size : kSizes) {
      require(tutti::match(*rules, bytes, size) == first_matching(*rules, Buffers::any, bytes, size));
      tutti::Question q;
      q.collective = collective;
      q.bytes = bytes;
      q.size = size;
      check_on_host(*selector, q, *rules);
      check_on_device(*selector, q, *rules);
    }
  }
}

}  // namespace

// The first byte says which collective the rest is a rule of.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto collective = static_cast<tutti::Collective>(data[0] % tutti::kCollectiveCount);
  if (collective == tutti::Collective::send_recv) return 0;
  check(collective, {reinterpret_cast<const char*>(data + 1), size - 1});
  return 0;
}
