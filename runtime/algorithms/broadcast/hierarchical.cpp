// Hierarchical broadcast: the root hands columns to its mates, every column is broadcast across domains, and
// carriers hand theirs to their mates.
// Knows nothing of transports, dtypes, time or memory; which ranks share a domain it is told.
//
// p = 5, root 1, domains {1 0} {2 3 4}, 2 columns L and H:
//   domain   1 -> 0: H
//   across   1 -> 2: L      0 -> 3: H
//   domain   1 -> 0: L      2 -> 3, 4: L    3 -> 2, 4: H
//
// input (root): count elements; output: count elements; scratch: none
// rounds 1 (0 with one column), those of the row across, 1
// bytes sent by the root up to (columns + n - 2)/columns m, and those of the row across, of m/columns
// bytes that leave a domain those of the row across, of m
#include "runtime/algorithms/patterns/columns.hpp"

namespace tutti {

Result<Schedule> broadcast_hierarchical(const CollectiveSpec& spec, const GroupView& view,
                                        const AlgorithmParams& params) {
  TUTTI_RETURN_IF_ERROR(check_hierarchy(view));
  const Columns columns(view, params.columns, spec.root);
  const bool is_root = view.rank == spec.root;
  const std::uint32_t root_domain = view.hierarchy->domain_of(spec.root);
  // What a carrier passes on lies in its output; the root's in its input.
  const auto part =
      emit_across(spec.collective, params.across, root_domain, spec.in_place || !is_root, columns);
  if (!part) return part.status();
  const std::uint32_t width = part->blocks;
  Builder b(spec, view, columns.count() * width);
  const auto range = [&](std::uint32_t j) { return b.output(std::int64_t{j} * width, width); };
  for (std::uint32_t j = 1; is_root && j < columns.count(); ++j)
    b.send(columns.mates()[j], b.input(std::int64_t{j} * width, width));
  if (columns.is_carrier()) {
    if (!is_root && columns.domain() == root_domain) b.recv(spec.root, range(columns.position()));
    const PartPlace place{neighbouring_blocks(columns.position() * width, width, 1)};
    TUTTI_RETURN_IF_ERROR(splice(b, *part, place));
  }
  emit_domain_spread(b, columns, ranges_of_columns(columns, width), is_root ? Buffer::input : Buffer::output,
                     spec.root);
  for (std::uint32_t j = 1; is_root && j < columns.count(); ++j)
    b.copy(range(j), b.input(std::int64_t{j} * width, width));
  return std::move(b).finish();
}

}  // namespace tutti
