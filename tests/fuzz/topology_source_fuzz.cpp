// Fuzz target: any bytes are either refused as XML of lstopo or as a synthetic topology, or are a topology
// that keeps its promises. hwloc itself reads them, first in a child. The first byte says which of the two
// the rest is.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "topology/discovery.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  ::setenv("HWLOC_HIDE_ERRORS", "2", 1);  // it would print pages about each input
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const auto topology =
      data[0] == 's' ? tutti::make_synthetic_topology(text) : tutti::read_topology_xml(text, "fuzz");
  if (!topology) {
    require(!topology.status().message().empty());
    return 0;
  }
  require(topology->check().is_ok() && !topology->is_this_machine);
  const auto again = tutti::parse_summary(tutti::to_summary(*topology));
  require(again.is_ok() && tutti::to_summary(*again) == tutti::to_summary(*topology));
  return 0;
}
