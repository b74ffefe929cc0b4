// The number of a rank's helper threads: TUTTI_HELPERS, and the choice where it says auto. Knows no thread.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "topology/topology.hpp"

namespace tutti {

struct HelperSettings {
  std::optional<std::uint32_t> count;  // nullopt: auto
};

// Errors: invalid_argument naming the variable, what it was given and what was expected.
Result<HelperSettings> read_helper_settings(const Environment& environment);

// How many helpers a rank has that may use `own` CPUs (the system's numbers), where the other ranks of its machine
// may use those of `neighbours`. A rank that is bound to CPUs which no other rank may use has as many as it has
// idle cores: all but one, within its share of the time that the cgroup grants, and at most kMostAutomaticHelpers.
// Any other rank has none: who else needs those CPUs is not known. A pure function.
std::uint32_t choose_helper_count(const Topology& topology, const std::vector<std::uint32_t>& own,
                                  std::span<const std::vector<std::uint32_t>> neighbours);
// More cores than that gain nothing: they take what the memory of a socket gives.
inline constexpr std::uint32_t kMostAutomaticHelpers = 15;

}  // namespace tutti
