// Binding ranks to CPUs. Knows no group.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/status.hpp"
#include "topology/topology.hpp"

namespace tutti::tool {

// The parts of a machine that ranks are dealt to in turn.
enum class MapLevel : std::uint8_t { core, llc, numa, socket };
std::optional<MapLevel> parse_map_level(std::string_view name);
std::string_view to_string(MapLevel level);

// The CPUs that a thread with the affinity of `topology` may use, in the order in which ranks get them: one of every
// core first, and the cores' further hardware threads after them. Neighbours get neighbouring cores (core), or a core
// of one last-level cache, NUMA node or socket after the other. `part_count` (may be null): how many of those there are.
std::vector<int> allowed_cpus_by(MapLevel level, const Topology& topology, std::size_t* part_count = nullptr);
// For people: "bound to one of 2 sockets after the other".
std::string map_text(MapLevel level, const Topology& topology);
// On this machine, of the calling thread.
std::vector<int> allowed_cpus_by(MapLevel level);

// Binds the calling thread (and the threads it starts later) to the CPU for that rank of this node. Ranks
// that outnumber the CPUs are dealt to them in turn. Errors: unsupported if the system refuses.
Status bind_to_core(int local_rank, const std::vector<int>& cpus);

}  // namespace tutti::tool
