// Hierarchical allgather: blocks to all mates, every column's blocks across domains, and what came from
// outside to all mates.
// Knows nothing of transports, dtypes, time or memory; which ranks share a domain it is told.
//
// p = 5, domains {0 1} {2 3 4}, 2 columns: 0 carries block 0, 1 block 1; 2 carries blocks 2 and 4, 3 block 3
//   domain   0 <-> 1;  2, 3, 4 among each other
//   across   0 <-> 2: 0 for 2, 4      1 <-> 3: 1 for 3
//   domain   0 -> 1: 2, 4    1 -> 0: 3    2 -> 3, 4: 0    3 -> 2, 4: 1
//
// input: own block; output: p blocks; no scratch
// rounds 1 (0 where every rank is a carrier, whose own block waits for nobody), those of the row across, 1
// bytes sent per rank (n-1)/p m + what comes in for its column, n-1 times; and what leaves
// bytes that leave a domain those of the row across: every block enters every other domain once
#include "runtime/algorithms/patterns/columns.hpp"

namespace tutti {

Result<Schedule> allgather_hierarchical(const CollectiveSpec& spec, const GroupView& view,
                                        const AlgorithmParams& params) {
  TUTTI_RETURN_IF_ERROR(check_hierarchy(view));
  const Columns columns(view, params.columns);
  Builder b(spec, view, view.size);
  const AlgorithmRow& direct = *find_algorithm(spec.collective, "direct");
  const auto inside = direct.emit(spec, columns.domain_view(), default_params(direct));
  if (!inside) return inside.status();
  PartPlace domain;
  for (const std::uint32_t mate : columns.mates()) domain.blocks.push_back({mate});
  TUTTI_RETURN_IF_ERROR(splice(b, *inside, domain));
  if (columns.is_carrier()) {
    const auto across = emit_across(spec.collective, params.across, 0, true, columns);
    if (!across) return across.status();
    PartPlace column;
    for (std::uint32_t d = 0; d < columns.domain_count(); ++d)
      column.blocks.push_back(columns.carried(d, columns.position()));
    TUTTI_RETURN_IF_ERROR(splice(b, *across, column));
  }
  std::vector<std::vector<ColumnRun>> foreign(columns.count());
  for (std::uint32_t j = 0; j < columns.count(); ++j) {
    std::vector<std::int64_t> blocks;
    for (std::uint32_t d = 0; d < columns.domain_count(); ++d) {
      const std::vector<std::uint32_t> carried = columns.carried(d, j);
      if (d != columns.domain()) blocks.insert(blocks.end(), carried.begin(), carried.end());
    }
    for (const BlockRun& run : to_runs(blocks)) foreign[j].push_back({run});
  }
  emit_domain_spread(b, columns, foreign);
  return std::move(b).finish();
}

}  // namespace tutti
