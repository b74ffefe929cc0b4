// Hierarchical scatter: a domain's blocks arrive together at its first member, which distributes them.
// In the root's domain the root does.
// Knows nothing of transports, dtypes, time or memory; the hierarchy is an argument.
//
// p = 5, domains {0 1} {2 3 4}, root 3
//   across   3 -> 0: blocks 0 and 1
//   domain   0 -> 1: block 1    3 -> 2: block 2    3 -> 4: block 4
//
// input (root): p blocks; output: one block
// scratch of a leader: its domain's blocks, and the row across's
// rounds 1 and those of the row across
// bytes sent per rank (p-1)/p m by the root, (n-1)/p m by other leaders (linear across)
// bytes that leave the root's domain (p-n)/p m, in as many messages as the others' ranks are ranges (linear)
// Blocks keep their identity, so counts may differ (scatterv).
#include "runtime/algorithms/patterns/leaders.hpp"

namespace tutti {

Result<Schedule> scatter_hierarchical(const CollectiveSpec& spec, const GroupView& view,
                                      const AlgorithmParams& params) {
  TUTTI_RETURN_IF_ERROR(check_hierarchy(view));
  const Leaders leaders(view, 1, spec.root);
  Builder b(spec, view, view.size);
  if (!leaders.is_leader()) {
    b.recv(leaders.mates()[0], b.output(view.rank));
    return std::move(b).finish();
  }
  const PartPlace place = place_of_leader(leaders, spec.root, Buffer::input, Buffer::output);
  const auto part = emit_across(spec.collective, params, view.hierarchy->domain_of(spec.root), true, leaders);
  if (!part) return part.status();
  TUTTI_RETURN_IF_ERROR(splice(b, *part, place));
  const std::vector<std::uint32_t>& members = place.blocks[leaders.domain()];
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    const Slice here = slice_at_leader(b, leaders, place, i);
    if (members[i] == view.rank) {
      b.copy(b.output(view.rank), here);
    } else {
      b.send(members[i], here);
    }
  }
  return std::move(b).finish();
}

}  // namespace tutti
