// Decides and applies the binding of a machine's ranks. Knows no exchange between them.
#include "runtime/group/pinning.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "runtime/base/log.hpp"
#include "topology/affinity.hpp"

namespace tutti {

Result<PinDecision> decide_pinning(const Topology& topology, const PinRequest& request,
                                   std::span<const StartAffinity> ranks_here, std::size_t index) {
  if (request.policy == PinPolicy::off) return PinDecision{{}, "nobody asks for it"};
  const auto differs = [&](const StartAffinity& rank) { return rank.cpus != ranks_here[0].cpus; };
  if (std::any_of(ranks_here.begin(), ranks_here.end(), differs))
    return PinDecision{{}, "the ranks of this machine are bound already, each to its own CPUs"};
  const auto is_bound = [](const StartAffinity& rank) { return rank.is_bound; };
  if (std::any_of(ranks_here.begin(), ranks_here.end(), is_bound)) {
    return PinDecision{{},
                       fmt::format("the ranks of this machine are bound already, to the CPUs {}",
                                   cpu_list_text(ranks_here[0].cpus))};
  }
  const auto placements = plan_placements(topology, static_cast<std::uint32_t>(ranks_here.size()), request);
  if (!placements) return placements.status();
  return PinDecision{cpus_of(topology, (*placements)[index]), {}};
}

Status pin_this_thread(const Topology& topology, const PinRequest& request,
                       std::span<const StartAffinity> ranks_here, std::size_t index) {
  // The binding that we gave this thread, for the next world that it makes.
  thread_local std::vector<std::uint32_t> bound_by_us;
  if (!bound_by_us.empty() && ranks_here[index].cpus == bound_by_us) return {};
  const auto decision = decide_pinning(topology, request, ranks_here, index);
  if (!decision) return decision.status();
  if (decision->cpus.empty()) {
    if (index == 0) log_warn("TUTTI_PIN is not followed: {}", decision->why_not);
    return {};
  }
  TUTTI_RETURN_IF_ERROR(bind_this_thread(decision->cpus));
  bound_by_us = decision->cpus;
  log_info("bound to the CPUs {}", cpu_list_text(bound_by_us));
  return {};
}

void pin_this_progress_thread(std::uint32_t number, std::span<const std::uint32_t> cpus) {
  if (cpus.empty()) return;
  if (const Status bound = bind_this_thread(cpus); !bound)
    log_warn("progress thread {} runs where it was started: {}", number, bound.message());
}

void bind_this_helper(std::span<const std::uint32_t> cpus) {
  if (cpus.empty()) return;
  if (const Status bound = bind_this_thread(cpus); !bound)
    log_warn("a helper thread runs where it was started: {}", bound.message());
}

}  // namespace tutti
