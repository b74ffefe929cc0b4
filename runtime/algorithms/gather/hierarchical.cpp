// Hierarchical gather: the first member of each domain collects its domain's blocks and sends them together.
// In the root's domain the root collects.
// Knows nothing of transports, dtypes, time or memory; the hierarchy is an argument.
//
// p = 5, domains {0 1} {2 3 4}, root 3
//   domain   1 -> 0: block 1    2 -> 3: block 2    4 -> 3: block 4
//   across   0 -> 3: blocks 0 and 1
//
// input: one block; output (root): p blocks
// scratch of a leader: its domain's blocks, and the row across's
// rounds 1 and those of the row across
// bytes sent per rank at most its domain's blocks, n/p m (linear across)
// bytes that leave a domain n/p m, in as many messages as its ranks are ranges (linear)
// Blocks keep their identity, so counts may differ (gatherv).
#include "runtime/algorithms/patterns/leaders.hpp"

namespace tutti {

Result<Schedule> gather_hierarchical(const CollectiveSpec& spec, const GroupView& view,
                                     const AlgorithmParams& params) {
  TUTTI_RETURN_IF_ERROR(check_hierarchy(view));
  const Leaders leaders(view, 1, spec.root);
  Builder b(spec, view, view.size);
  if (!leaders.is_leader()) {
    b.send(leaders.mates()[0], b.input(view.rank));
    return std::move(b).finish();
  }
  const PartPlace place = place_of_leader(leaders, spec.root, Buffer::output, Buffer::input);
  const std::vector<std::uint32_t>& members = place.blocks[leaders.domain()];
  for (std::uint32_t i = 0; i < members.size(); ++i) {
    const Slice here = slice_at_leader(b, leaders, place, i);
    if (members[i] == view.rank) {
      b.copy(here, b.input(view.rank));
    } else {
      b.recv(members[i], here);
    }
  }
  const auto part = emit_across(spec.collective, params, view.hierarchy->domain_of(spec.root), true, leaders);
  if (!part) return part.status();
  TUTTI_RETURN_IF_ERROR(splice(b, *part, place));
  return std::move(b).finish();
}

}  // namespace tutti
