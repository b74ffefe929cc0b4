// Hierarchical reduce: sums inside of each domain, a reduce of every column to the root's domain, whose
// carriers hand their columns to the root.
// Knows nothing of transports, dtypes, time or memory; which ranks share a domain it is told.
//
// p = 5, root 1, domains {1 0} {2 3 4}, 2 columns L and H:
//   domain   L: 0-1 at 1    H: 0-1 at 0    L: 2-4 at 2    H: 2-4 at 3
//   across   2 -> 1: L      3 -> 0: H
//   domain   0 -> 1: H
//
// input: count elements; output (root): count elements; scratch: in the domain (n-1)/columns of the vector,
//   a column's sum, and the row across's
// rounds 1, those of the row across, 1 (0 with one column)
// bytes sent per rank up to m, and those of the row across, of m/columns
// bytes that leave a domain those of the row across, of m
// order: rank order inside, domain order across -> any op where domains are ranges of ranks
#include "runtime/algorithms/patterns/columns.hpp"

namespace tutti {

Result<Schedule> reduce_hierarchical(const CollectiveSpec& spec, const GroupView& view,
                                     const AlgorithmParams& params) {
  TUTTI_RETURN_IF_ERROR(check_hierarchy(view));
  const Columns columns(view, params.columns, spec.root);
  const bool is_root = view.rank == spec.root;
  const std::uint32_t root_domain = view.hierarchy->domain_of(spec.root);
  const bool in_place = spec.in_place || columns.mates().size() > 1;
  const auto part = emit_across(spec.collective, params.across, root_domain, in_place, columns);
  if (!part) return part.status();
  const std::uint32_t width = part->blocks;
  Builder b(spec, view, columns.count() * width);
  const Buffer home = is_root ? Buffer::output : Buffer::scratch;
  const PartBuffer sums = emit_domain_sums(b, columns, ranges_of_columns(columns, width), home);
  if (!columns.is_carrier()) return std::move(b).finish();
  // Sums are reduced where they are; the carriers beside the root hold the results in scratch, too.
  const std::uint32_t first = columns.position() * width;
  const bool has_sums = sums.buffer != Buffer::input;
  const PartPlace place{
      neighbouring_blocks(first, width, 1), {Buffer::input}, has_sums ? sums : PartBuffer{}};
  TUTTI_RETURN_IF_ERROR(splice(b, *part, place));
  if (columns.domain() != root_domain) return std::move(b).finish();
  if (!is_root) b.send(spec.root, b.scratch(sums.slot, first, width));
  for (std::uint32_t j = 1; is_root && j < columns.count(); ++j)
    b.recv(columns.mates()[j], b.output(std::int64_t{j} * width, width));
  return std::move(b).finish();
}

}  // namespace tutti
