// Hierarchical reduce-scatter: sums of each leader's blocks inside of each domain, a reduce-scatter of these
// across domains, and finished blocks to their owners.
// Knows nothing of transports, dtypes, time or memory; the hierarchy is an argument.
//
// p = 5, domains {0 1} {2 3 4}, 2 leaders: 0 and 2 move blocks 0, 2, 4; 1 and 3 blocks 1, 3
//   domain   0: 0, 2, 4 of 0-1    1: 1, 3 of 0-1    2: 0, 2, 4 of 2-4    3: 1, 3 of 2-4
//   across   0 -> 2: 2, 4    2 -> 0: 0    1 -> 3: 3    3 -> 1: 1; each is added in domain order
//   domain   2 -> 4: 4
//
// input: p blocks; output: own block; scratch: (n-1)/leaders of the vector, and the sums of the own blocks
// rounds 2 (+1 where not every rank is a leader)
// bytes sent per rank (p-1)/p m by leaders, m by others
// bytes that leave a domain (p-n)/p m: one sum for each rank outside
// order: rank order inside, domain order across -> any op where domains are ranges of ranks
#include "runtime/algorithms/patterns/leaders.hpp"

namespace tutti {
namespace {

// Blocks of leader j with the slots of their sums: those of domain d begin at d * width.
std::vector<LeaderRun> runs_of_leader(const Leaders& leaders, std::uint32_t j, std::uint32_t width) {
  std::vector<LeaderRun> runs;
  std::vector<std::int64_t> blocks;
  std::uint32_t slot = 0;
  const auto flush = [&] {
    for (const BlockRun& run : to_runs(blocks)) {
      runs.push_back({run, slot});
      slot += run.count;
    }
    blocks.clear();
  };
  for (std::uint32_t d = 0; d < leaders.domain_count(); ++d) {
    const std::vector<std::uint32_t> moved = leaders.blocks_of(d, j);
    blocks.insert(blocks.end(), moved.begin(), moved.end());
    if (moved.size() == width) continue;
    flush();
    slot = (d + 1) * width;
  }
  flush();
  return runs;
}

}  // namespace

Result<Schedule> reduce_scatter_hierarchical(const CollectiveSpec& spec, const GroupView& view,
                                             const AlgorithmParams& params) {
  TUTTI_RETURN_IF_ERROR(check_hierarchy(view));
  const Leaders leaders(view, params.leaders);
  Builder b(spec, view, view.size);
  std::vector<std::vector<LeaderRun>> runs;
  PartPlace place;
  for (std::uint32_t j = 0; j < leaders.count(); ++j) {
    PartPlace share;
    for (std::uint32_t d = 0; d < leaders.domain_count(); ++d)
      share.blocks.push_back(leaders.blocks_of(d, j));
    runs.push_back(runs_of_leader(leaders, j, share.width()));
    if (j == leaders.position()) place = std::move(share);
  }
  place.input = emit_domain_sums(b, leaders, runs, Buffer::scratch);
  const std::uint32_t own = leaders.position();
  if (!leaders.is_leader()) {
    b.recv(leaders.mates()[own % leaders.count()], b.output(view.rank));
    return std::move(b).finish();
  }
  // Blocks for mates are finished where their sums are; a block for nobody else goes to the output at once.
  const std::vector<std::uint32_t>& finished = place.blocks[leaders.domain()];
  const bool is_own_alone = finished.size() == 1;
  const bool has_sums = place.input.buffer != Buffer::input;
  if (!is_own_alone) place.output = place.input;
  const bool in_place = is_own_alone ? spec.in_place && !has_sums : true;
  const auto part = emit_across(spec.collective, params, 0, in_place, leaders);
  if (!part) return part.status();
  TUTTI_RETURN_IF_ERROR(splice(b, *part, place));
  if (is_own_alone) return std::move(b).finish();
  for (std::uint32_t i = 0; i < finished.size(); ++i) {
    const Slice sum = b.scratch(leaders.domain() * place.width() + i, finished[i]);
    if (finished[i] == view.rank) {
      b.copy(b.output(view.rank), sum);
    } else {
      b.send(finished[i], sum);
    }
  }
  return std::move(b).finish();
}

}  // namespace tutti
