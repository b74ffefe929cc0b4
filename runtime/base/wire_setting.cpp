// Reads and prints the setting. See wire_setting.hpp.
#include "runtime/base/wire_setting.hpp"

#include <fmt/format.h>

#include "runtime/base/ops.hpp"

namespace tutti {

bool is_wire_dtype(Dtype dtype) { return is_narrow_float(dtype); }

Result<WireSetting> parse_wire_setting(std::string_view text) {
  constexpr std::string_view kEverywhere = ":all";
  WireSetting setting;
  std::string_view name = text;
  if (name.ends_with(kEverywhere)) {
    setting.is_everywhere = true;
    name.remove_suffix(kEverywhere.size());
  }
  if (name == "none") return setting;
  setting.dtype = parse_dtype(name);
  if (setting.dtype && is_wire_dtype(*setting.dtype)) return setting;
  return invalid_argument(fmt::format(
      "'{}' is no dtype for messages: expected none, {}; with :all behind it for messages within a node, too",
      text, kWireDtypeNames));
}

Status check_wire_dtype(std::string_view name, const Call& call) {
  if (!call.wire_dtype || *call.wire_dtype == call.dtype) return {};
  if (static_cast<int>(*call.wire_dtype) >= kDtypeCount || !is_wire_dtype(*call.wire_dtype))
    return invalid_argument(fmt::format("{}: wire_dtype: expected {}, or {} itself for messages in full",
                                        name, kWireDtypeNames, to_string(call.dtype)));
  if (has_wire_form(call)) return {};
  return invalid_argument(
      fmt::format("{}: wire_dtype: only sums of f32 travel in another dtype (allreduce, reduce and "
                  "reduce_scatter by sum, avg or premul_sum), not {} of {}{}",
                  name, to_string(call.collective), to_string(call.dtype),
                  is_reducing(call.collective) ? fmt::format(", {}", to_string(call.op.op)) : ""));
}

std::string to_text(const WireSetting& setting) {
  return fmt::format("{}{}", setting.dtype ? to_string(*setting.dtype) : "none",
                     setting.is_everywhere ? ":all" : "");
}

}  // namespace tutti
