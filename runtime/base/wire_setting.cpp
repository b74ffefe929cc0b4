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

std::string to_text(const WireSetting& setting) {
  return fmt::format("{}{}", setting.dtype ? to_string(*setting.dtype) : "none",
                     setting.is_everywhere ? ":all" : "");
}

}  // namespace tutti
