// Stands in for hwloc_discovery.cpp in a build without hwloc.
// Knows only that there is nothing to ask.
#include "topology/discovery.hpp"

namespace tutti::detail {

Result<Topology> discover_with_hwloc(const HwlocSource&) {
  return unsupported("this build has no hwloc (Debian: libhwloc-dev; meson option hwloc)");
}

}  // namespace tutti::detail
