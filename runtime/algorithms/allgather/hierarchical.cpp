// Hierarchical allgather: each block goes to all mates, then each leader's blocks across domains, then the
// foreign blocks to all mates.
// Knows nothing of transports, dtypes, time or memory; the hierarchy is an argument.
//
// p = 5, domains {0 1} {2 3 4}, 2 leaders: 0 moves block 0, 1 block 1; 2 moves blocks 2 and 4, 3 block 3
//   domain   0 <-> 1;  2, 3, 4 among each other
//   across   0 <-> 2: 0 for 2, 4      1 <-> 3: 1 for 3
//   domain   0 -> 1: 2, 4    1 -> 0: 3    2 -> 3, 4: 0    3 -> 2, 4: 1
//
// input: own block; output: p blocks; no scratch
// rounds 1 (0 where every rank is a leader, whose own block is there at once), those of the row across, 1
// bytes sent per rank (n-1)/p m, the foreign blocks of this leader n-1 times, and the blocks sent across
// bytes that leave a domain those of the row across: every block enters every other domain once
#include "runtime/algorithms/patterns/leaders.hpp"

namespace tutti {

Result<Schedule> allgather_hierarchical(const CollectiveSpec& spec, const GroupView& view,
                                        const AlgorithmParams& params) {
  TUTTI_RETURN_IF_ERROR(check_hierarchy(view));
  const Leaders leaders(view, params.leaders);
  Builder b(spec, view, view.size);
  const AlgorithmRow& direct = *find_algorithm(spec.collective, "direct");
  const auto inside = direct.emit(spec, leaders.domain_view(), default_params(direct));
  if (!inside) return inside.status();
  PartPlace domain;
  for (const std::uint32_t mate : leaders.mates()) domain.blocks.push_back({mate});
  TUTTI_RETURN_IF_ERROR(splice(b, *inside, domain));
  if (leaders.is_leader()) {
    const auto across = emit_across(spec.collective, params, 0, true, leaders);
    if (!across) return across.status();
    PartPlace share;
    for (std::uint32_t d = 0; d < leaders.domain_count(); ++d)
      share.blocks.push_back(leaders.blocks_of(d, leaders.position()));
    TUTTI_RETURN_IF_ERROR(splice(b, *across, share));
  }
  std::vector<std::vector<LeaderRun>> foreign(leaders.count());
  for (std::uint32_t j = 0; j < leaders.count(); ++j) {
    std::vector<std::int64_t> blocks;
    for (std::uint32_t d = 0; d < leaders.domain_count(); ++d) {
      const std::vector<std::uint32_t> moved = leaders.blocks_of(d, j);
      if (d != leaders.domain()) blocks.insert(blocks.end(), moved.begin(), moved.end());
    }
    for (const BlockRun& run : to_runs(blocks)) foreign[j].push_back({run});
  }
  emit_domain_spread(b, leaders, foreign);
  return std::move(b).finish();
}

}  // namespace tutti
