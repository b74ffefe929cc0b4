// Where the ranks of a job that does not run would be. Knows settings and topologies as values; no exchange.
#pragma once

#include <cstdint>

#include "runtime/group/settings.hpp"

namespace tutti::tool {

// The domains that the ranks would agree on; see WorldDomains. `cpu_count`: CPUs that the ranks of a node may use.
WorldDomains assume_domains(const WorldSettings& settings, std::uint32_t rank_count, std::uint32_t per_node,
                            std::uint32_t cpu_count);

}  // namespace tutti::tool
