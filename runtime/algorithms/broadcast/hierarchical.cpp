// Hierarchical broadcast: the root gives each leader of its domain a share, every share is broadcast across
// domains, and the leaders send it to their mates.
// Knows nothing of transports, dtypes, time or memory; the hierarchy is an argument.
//
// p = 5, root 1, domains {1 0} {2 3 4}, 2 leaders with the shares L and H:
//   domain   1 -> 0: H
//   across   1 -> 2: L      0 -> 3: H
//   domain   1 -> 0: L      2 -> 3, 4: L    3 -> 2, 4: H
//
// input (root): count elements; output: count elements; scratch: none
// rounds 1 (0 with one leader), those of the row across, 1
// bytes sent by the root up to (leaders + n - 2)/leaders m, and those of the row across, of m/leaders
// bytes that leave a domain those of the row across, of m
#include "runtime/algorithms/patterns/leaders.hpp"

namespace tutti {

Result<Schedule> broadcast_hierarchical(const CollectiveSpec& spec, const GroupView& view,
                                        const AlgorithmParams& params) {
  TUTTI_RETURN_IF_ERROR(check_hierarchy(view));
  const Hierarchy& hierarchy = hierarchy_of(*view.hierarchy, params);
  const Leaders leaders(view, hierarchy, params.leaders, spec.root);
  const bool is_root = view.rank == spec.root;
  const std::uint32_t root_domain = hierarchy.domain_of(spec.root);
  // A leader sends from its output, the root from its input.
  const auto part = emit_across(spec.collective, params, root_domain, spec.in_place || !is_root, leaders,
                                &hierarchy != view.hierarchy);
  if (!part) return part.status();
  const std::uint32_t width = part->blocks;
  Builder b(spec, view, leaders.count() * width);
  const auto range = [&](std::uint32_t j) { return b.output(std::int64_t{j} * width, width); };
  for (std::uint32_t j = 1; is_root && j < leaders.count(); ++j)
    b.send(leaders.mates()[j], b.input(std::int64_t{j} * width, width));
  if (leaders.is_leader()) {
    if (!is_root && leaders.domain() == root_domain) b.recv(spec.root, range(leaders.position()));
    const PartPlace place{neighbouring_blocks(leaders.position() * width, width, 1)};
    TUTTI_RETURN_IF_ERROR(splice(b, *part, place));
  }
  emit_domain_spread(b, leaders, ranges_of_leaders(leaders, width), is_root ? Buffer::input : Buffer::output,
                     spec.root);
  for (std::uint32_t j = 1; is_root && j < leaders.count(); ++j)
    b.copy(range(j), b.input(std::int64_t{j} * width, width));
  return std::move(b).finish();
}

}  // namespace tutti
