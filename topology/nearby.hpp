// Which memory, GPU and NIC lie near a rank's CPUs. Knows values only.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "topology/binding.hpp"

namespace tutti::detail {

// Positions of the NUMA nodes whose PUs these are; of several with the same PUs the ordinary memory.
std::vector<std::uint32_t> numa_nodes_of(const Topology& topology, const std::vector<std::uint32_t>& pus);

// The candidate nearest to a rank: below the same bridges as its GPU, then next to most of its CPUs, then
// known most closely, then with the fewest ranks so far (`loads`, by position of the device). nullopt without
// candidates.
std::optional<std::uint32_t> nearest_device(const Topology& topology,
                                            const std::vector<std::uint32_t>& candidates,
                                            const Placement& placement, std::vector<std::uint32_t>* loads);

// NICs worth using: those of the best kind that is there.
std::vector<std::uint32_t> usable_nics(const Topology& topology);

}  // namespace tutti::detail
