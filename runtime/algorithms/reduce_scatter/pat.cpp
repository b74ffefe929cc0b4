// PAT reduce-scatter (parallel aggregated trees): every block's sum comes up a binomial tree over ranks, the
// messages of many blocks from near ranks first.
// Knows nothing of transports, dtypes, time or memory.
//
// The PAT allgather backwards. p = 8, what rank r sends, as offsets o (block r + o):
//   aggregate 4 (all)   1 3 5 7 to r+1 | 2 6 to r+2 | 4 to r+4
//   aggregate 2         3 7 to r+1 | 1 5 to r+1 | 2 6 to r+2 | 4 to r+4
//
// input: p blocks; output: own block; scratch: two messages' arrivals and the partial sums not yet sent,
//   about A (2 + log2(P/A)) blocks with A = aggregate, P = p rounded up to a power of two
// rounds (longest chain) about log2 A + 3/4 P/A of log2 A + P/A - 1 messages
// bytes sent per rank (p-1)/p m
// order: by distance -> needs commutative op
// Any p with locality and bounded scratch: for tapered networks and large vectors. Segments pay with few
// messages (large A).
// Source: NCCL 2.23, arXiv 2506.20252.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> reduce_scatter_pat(const CollectiveSpec& spec, const GroupView& view,
                                    const AlgorithmParams& params) {
  Builder b(spec, view, view.size);
  emit_reduce_scatter(b, pat_pattern(b.size(), b.rank(), params.aggregate), PartialSums::in_scratch);
  return std::move(b).finish();
}

}  // namespace tutti
