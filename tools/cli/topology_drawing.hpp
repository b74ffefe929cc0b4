// `tutti info --topology`: a machine as nested boxes with the ranks in them.
// Knows plans as values; the picture itself is drawn by a script.
#pragma once

#include <string>

#include "runtime/base/status.hpp"
#include "tools/cli/json.hpp"
#include "tools/cli/plan_text.hpp"

namespace tutti::tool {

// Nested boxes: sockets, NUMA nodes, last-level caches, cores, with the ranks of each. A device is in the
// smallest box that it is next to.
Json boxes_of(const Plan& plan);

// The boxes in lines of text, caches of one kind side by side in brackets. A core shows its ranks: "0", "0-3"
// if several share it, "0|1" if they divide its threads, '.' if it is free, '~' if it is not allowed.
std::string draw(const Json& boxes);

// The boxes as SVG, by the script. Errors: invalid_argument, unsupported (no python3).
Status draw_svg(const Json& boxes, const std::string& path);

}  // namespace tutti::tool
