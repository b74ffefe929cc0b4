// The setting TUTTI_WIRE_DTYPE: in which dtype messages of a group travel. Knows no group.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/status.hpp"
#include "runtime/base/types.hpp"

namespace tutti {

struct WireSetting {
  std::optional<Dtype> dtype;  // of sums of f32 that do not say; unset: in full
  bool is_everywhere = false;  // of messages within a node, too
};

// "none", "bf16", "f16", "f8e4m3" or "f8e5m2", each with ":all" behind it or not. Errors: invalid_argument saying
// what was expected.
Result<WireSetting> parse_wire_setting(std::string_view text);
std::string to_text(const WireSetting& setting);

// Whether messages can travel in it: a float narrower than f32.
bool is_wire_dtype(Dtype dtype);
inline constexpr std::string_view kWireDtypeNames = "bf16, f16, f8e4m3 or f8e5m2";

}  // namespace tutti
