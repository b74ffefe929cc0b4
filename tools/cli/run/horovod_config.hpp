// Configuration files of horovodrun (--config-file): the YAML that they consist of. Knows no flag.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti {

struct HorovodSetting {
  std::string key;  // "controller", or "params.cycle_time_ms" below a section
  std::string value;
  int line = 0;
  bool operator==(const HorovodSetting&) const = default;
};

// Reads "key: value" lines and sections of them, with comments and quoted values:
//   params:
//     fusion_threshold_mb: 32   # MiB
//   controller: gloo
// Settings without a value, or null, are left out. Errors: invalid_argument with the line, also for the rest of
// YAML: lists, mappings in braces, deeper sections, anchors, text of several lines.
Result<std::vector<HorovodSetting>> parse_horovod_config(std::string_view text);

}  // namespace tutti
