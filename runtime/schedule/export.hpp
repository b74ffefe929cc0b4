// Schedules for other people's tools: GOAL text for LogGOPSim and ATLAHS, Graphviz for pictures.
// Knows no counts beyond the one size it is given.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "runtime/base/status.hpp"
#include "runtime/schedule/schedule.hpp"

namespace tutti {

struct GoalOptions {
  std::uint64_t atom_bytes = 1;         // every atom is this large
  std::uint64_t reduce_ns_per_kib = 0;  // cost of combining 1024 bytes of two sources
  std::uint64_t copy_ns_per_kib = 0;
};

// GOAL: one label per step. "requires" stands for dependencies and the local steps before one in its channel,
// "irequires" (start after start) for the order of issue in a channel; the tag is the channel. Errors:
// unsupported for lowered schedules, which exchange no messages.
Result<std::string> export_goal(std::span<const Schedule> ranks, const GoalOptions& options = {});

// Graphviz: a cluster per rank. Edges are solid for dependencies, dashed for the order of a channel, bold for
// messages (matched first in first out) and waits.
std::string export_dot(std::span<const Schedule> ranks);

}  // namespace tutti
