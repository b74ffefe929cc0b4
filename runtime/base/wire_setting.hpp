// The setting TUTTI_WIRE_DTYPE: the dtype of messages of a group; and the check of one that a call asks for. Knows no group.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/call.hpp"
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

// Errors: invalid_argument that begins with `name`, where the wire dtype of the call is none or does not fit.
Status check_wire_dtype(std::string_view name, const Call& call);

}  // namespace tutti
