// Binds the ranks of a machine by TUTTI_PIN, if they are not bound already. Knows affinities, no exchange
// between ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "runtime/base/status.hpp"
#include "topology/binding.hpp"
#include "topology/topology.hpp"

namespace tutti {

// The affinity that a rank was started with.
struct StartAffinity {
  std::vector<std::uint32_t> cpus;  // rising
  bool is_bound = false;            // Topology::is_bound
};

struct PinDecision {
  std::vector<std::uint32_t> cpus;  // of the own rank; empty: no rank of this machine is bound
  std::string why_not;
};

// The decision for rank `index` of this machine, in rank order; equal on all its ranks. If the launcher has
// bound some of them, none is bound. Errors: those of plan_placements().
Result<PinDecision> decide_pinning(const Topology& topology, const PinRequest& request,
                                   std::span<const StartAffinity> ranks_here, std::size_t index);
// Decides, and binds the calling thread. Warns once for the machine if ranks were bound by a launcher; a
// binding of an earlier world does not count. Errors: those of decide_pinning() and bind_this_thread().
Status pin_this_thread(const Topology& topology, const PinRequest& request,
                       std::span<const StartAffinity> ranks_here, std::size_t index);

// Binds the calling progress thread to these CPUs; none: it stays as it is. A failure is only a warning.
void pin_this_progress_thread(std::uint32_t number, std::span<const std::uint32_t> cpus);
// The same for a helper thread.
void bind_this_helper(std::span<const std::uint32_t> cpus);

}  // namespace tutti
