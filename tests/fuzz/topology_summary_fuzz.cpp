// Fuzz target: any bytes are either refused as a topology summary, or are a topology whose own summary says the
// same and whose questions have answers.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "topology/topology.hpp"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

std::uint64_t covered(const std::vector<tutti::PuRange>& groups) {
  std::uint64_t next = 0;
  for (const tutti::PuRange& group : groups) {
    require(group.first == next && group.count > 0);
    next = group.end();
  }
  return next;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto topology = tutti::parse_summary({reinterpret_cast<const char*>(data), size});
  if (!topology) {
    require(!topology.status().message().empty());
    return 0;
  }
  require(topology->check().is_ok());
  const auto again = tutti::parse_summary(tutti::to_summary(*topology));
  require(again.is_ok() && *again == *topology);
  require(covered(topology->groups_by_numa()) == topology->pu_count());
  for (std::uint32_t level = 0; level <= topology->last_level(); ++level)
    require(covered(topology->groups_by_cache(level)) == topology->pu_count());
  const std::uint32_t last = topology->pu_count() - 1;
  const tutti::Cache* shared = topology->smallest_shared_cache(0, last);
  require(shared == nullptr || (shared->pus.contains(0) && shared->pus.contains(last)));
  require(topology->find_pu(topology->pus[last].os_index) == last);
  return 0;
}
