// Hierarchical reduce: sums inside of each domain, one reduce to the root's domain for each leader's share, and
// the shares to the root.
// Knows nothing of transports, dtypes, time or memory; the hierarchy is an argument.
//
// p = 5, root 1, domains {1 0} {2 3 4}, 2 leaders with the shares L and H:
//   domain   L: 0-1 at 1    H: 0-1 at 0    L: 2-4 at 2    H: 2-4 at 3
//   across   2 -> 1: L      3 -> 0: H
//   domain   0 -> 1: H
//
// input: count elements; output (root): count elements
// scratch: in the domain (n-1)/leaders of the vector, a share's sum, and the row across's
// rounds 1, those of the row across, 1 (0 with one leader)
// bytes sent per rank up to m, and those of the row across, of m/leaders
// bytes that leave a domain those of the row across, of m
// order: rank order inside, domain order across -> any op where domains are ranges of ranks
#include "runtime/algorithms/patterns/leaders.hpp"

namespace tutti {

Result<Schedule> reduce_hierarchical(const CollectiveSpec& spec, const GroupView& view,
                                     const AlgorithmParams& params) {
  TUTTI_RETURN_IF_ERROR(check_hierarchy(view));
  const Leaders leaders(view, params.leaders, spec.root);
  const bool is_root = view.rank == spec.root;
  const std::uint32_t root_domain = view.hierarchy->domain_of(spec.root);
  const bool in_place = spec.in_place || leaders.mates().size() > 1;
  const auto part = emit_across(spec.collective, params, root_domain, in_place, leaders);
  if (!part) return part.status();
  const std::uint32_t width = part->blocks;
  Builder b(spec, view, leaders.count() * width);
  const Buffer home = is_root ? Buffer::output : Buffer::scratch;
  const PartBuffer sums = emit_domain_sums(b, leaders, ranges_of_leaders(leaders, width), home);
  if (!leaders.is_leader()) return std::move(b).finish();
  // Sums are reduced where they are; the other leaders of the root's domain hold the results in scratch, too.
  const std::uint32_t first = leaders.position() * width;
  const bool has_sums = sums.buffer != Buffer::input;
  const PartPlace place{
      neighbouring_blocks(first, width, 1), {Buffer::input}, has_sums ? sums : PartBuffer{}};
  TUTTI_RETURN_IF_ERROR(splice(b, *part, place));
  if (leaders.domain() != root_domain) return std::move(b).finish();
  if (!is_root) b.send(spec.root, b.scratch(sums.slot, first, width));
  for (std::uint32_t j = 1; is_root && j < leaders.count(); ++j)
    b.recv(leaders.mates()[j], b.output(std::int64_t{j} * width, width));
  return std::move(b).finish();
}

}  // namespace tutti
