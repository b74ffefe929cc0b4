// Whether TUTTI_PIN binds the ranks of a machine, and where: what init() does with a plan.
// Knows affinities, no exchange between ranks.
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

// What a rank was started with.
struct StartAffinity {
  std::vector<std::uint32_t> cpus;  // rising
  bool is_bound = false;            // Topology::is_bound
};

struct PinDecision {
  std::vector<std::uint32_t> cpus;  // for the rank that asks; empty: nobody of this machine is bound
  std::string why_not;
};

// For rank `index` of those on this machine, in rank order; all of them come to the same decision. Where some
// of them are bound already, the launcher knows better and nobody is. Errors: those of plan_placements().
Result<PinDecision> decide_pinning(const Topology& topology, const PinRequest& request,
                                   std::span<const StartAffinity> ranks_here, std::size_t index);
// Decides, and binds the calling thread. Warns, once for the machine, where it is asked to and does not; a
// thread that an earlier world has bound is no reason to. Errors: those of decide_pinning() and
// bind_this_thread().
Status pin_this_thread(const Topology& topology, const PinRequest& request,
                       std::span<const StartAffinity> ranks_here, std::size_t index);

// Binds a worker, the calling thread, to these CPUs; none: it stays as it is. A failure is worth a warning.
void pin_this_worker(std::uint32_t worker, std::span<const std::uint32_t> cpus);

}  // namespace tutti
