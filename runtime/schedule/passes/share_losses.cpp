// Counts the copies of each rounded value in a symbolic run of all ranks. See share_losses.hpp.
#include "runtime/schedule/passes/share_losses.hpp"

#include <unordered_map>
#include <vector>

#include "runtime/schedule/passes/slice_parts.hpp"
#include "runtime/schedule/symbolic_run.hpp"

namespace tutti {

Result<Schedule> share_losses(std::span<const Schedule> ranks, std::uint32_t rank) {
  detail::SymbolicRun run(ranks, Algebra::expression);
  TUTTI_RETURN_IF_ERROR(run.run());
  std::unordered_map<detail::Value, std::uint32_t> copies;
  for (const auto& rounding : run.roundings()) ++copies[rounding.value];
  const Schedule& from = ranks[rank];
  std::vector<std::vector<std::uint32_t>> copies_of(from.steps.size());  // by step, of each atom
  for (const auto& rounding : run.roundings()) {
    if (rounding.rank == rank) copies_of[rounding.step].push_back(copies[rounding.value]);
  }
  Schedule to = from;
  to.steps.clear();
  to.sources.clear();
  to.dependencies.clear();
  for (std::uint32_t i = 0; i < from.steps.size(); ++i) {
    Step step = from.steps[i];
    const std::span<const Slice> sources = from.sources_of(step);
    if (copies_of[i].empty()) {
      to.append(step, sources, {});
      continue;
    }
    detail::for_runs(
        step.dst.count, [&](std::uint32_t k) { return copies_of[i][k]; },
        [&](std::uint32_t first, std::uint32_t count) {
          const Slice source = detail::part(from, sources[0], first, count);
          step.dst = detail::part(from, from.steps[i].dst, first, count);
          step.peer = copies_of[i][first];
          to.append(step, {&source, 1}, {});
        });
  }
  infer_dependencies(to);
  return to;
}

}  // namespace tutti
