// The rule grammar of TUTTI_ADJUST_<COLLECTIVE>, as a value.
//
//   rules      = item { ";" item }
//   item       = algorithm [ "(" name "=" value { "," name "=" value } ")" ] [ ":" condition { "," condition } ]
//   algorithm  = name of the catalogue | number of I_MPI_ADJUST | "0" | "auto" | "nccl" | "staged"
//   condition  = size-range [ "@" size-of-group-range ]        range = n | n "-" m | "-" m | n "-"
//
// Bounds are inclusive; sizes take k, m, g (powers of 1024). The first item that matches wins; an item without
// conditions matches everything; "0" and "auto" leave the choice to the next source. Knows no environment.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/algorithms/catalog.hpp"
#include "runtime/base/status.hpp"

namespace tutti {

struct RuleCondition {
  std::uint64_t min_bytes = 0;
  std::uint64_t max_bytes = std::numeric_limits<std::uint64_t>::max();
  std::uint32_t min_size = 0;
  std::uint32_t max_size = std::numeric_limits<std::uint32_t>::max();
  bool operator==(const RuleCondition&) const = default;
};

// The engines that carry out calls on buffers of GPUs: NCCL, our kernels over peer memory (two), our schedules
// over CUDA IPC, and our schedules on the host by way of pinned memory. Rules name the first and the last; the
// others follow from an algorithm. Of equal prices the first one is taken.
enum class DeviceEngineKind : std::uint8_t { nccl, one_shot, two_shot, ipc_schedule, staged };
inline constexpr std::array<std::string_view, 5> kDeviceEngineNames = {"nccl", "one_shot", "two_shot",
                                                                       "ipc_schedule", "staged"};
inline constexpr std::size_t kDeviceEngineCount = kDeviceEngineNames.size();

constexpr std::string_view to_string(DeviceEngineKind kind) {
  return kDeviceEngineNames[static_cast<std::size_t>(kind)];
}

struct RuleItem {
  std::optional<DeviceEngineKind> engine;  // named: no row, and the item is for buffers on GPUs only
  const AlgorithmRow* row = nullptr;       // null without an engine: automatic choice
  AlgorithmParams params;                  // defaults of the row, overridden by the item
  std::uint64_t segment_bytes = 0;         // "segment=256k": pieces of about this size; 0 = not given
  std::vector<RuleCondition> conditions;   // empty: everything
  std::uint32_t column = 0;                // where the item starts in its text, from 1
  bool is_choice() const { return row != nullptr || engine.has_value(); }
};
using RuleList = std::vector<RuleItem>;

// Parses one rule text of a collective.
// Errors: invalid_argument; the message quotes the text, points at the column and lists what is right there.
Result<RuleList> parse_rules(Collective collective, std::string_view text);

// Parses one item without conditions, as a call's argument has it. Allocates only what an error message
// needs.
Result<RuleItem> parse_argument(Collective collective, std::string_view text);

// Whether the item's conditions admit a vector of that many bytes over that many ranks; the first item that
// does, or null.
bool match_item(const RuleItem& item, std::uint64_t bytes, std::uint32_t size);
const RuleItem* match(const RuleList& rules, std::uint64_t bytes, std::uint32_t size);

// The text of an item, with what differs from the row's defaults: "bruck(radix=4):-4k,1m-@8-16". Parsing it
// gives the item again.
std::string to_text(const RuleItem& item);
// The algorithm with parameters alone.
std::string to_text(const AlgorithmRow& row, const AlgorithmParams& params, std::uint64_t segment_bytes = 0);

}  // namespace tutti
