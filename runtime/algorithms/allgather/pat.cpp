// PAT allgather (parallel aggregated trees): every block goes down a binomial tree over ranks, far ones
// first; the messages of many blocks go to near ranks.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 8, what rank r receives, as offsets o (block r + o):
//   aggregate 4 (all)   4 from r+4 | 2 6 from r+2 | 1 3 5 7 from r+1
//   aggregate 2         4 from r+4 | 2 6 from r+2 | 1 5 from r+1 | 3 7 from r+1
//   aggregate 1         4 | 6 | 7 | 5 | 2 | 3 | 1, one at a time, depth first
//
// input: own block; output: p blocks; no scratch; strided slices
// rounds (longest chain) up to ceil(log2 p); log2 A + P/A - 1 messages, A = aggregate, P = p rounded up to a
//   power of two
// bytes sent per rank (p-1)/p m
// Any p with locality: for tapered networks. Segments pay for large vectors with few messages (large A).
// Source: NCCL 2.23, arXiv 2506.20252.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> allgather_pat(const CollectiveSpec& spec, const GroupView& view,
                               const AlgorithmParams& params) {
  Builder b(spec, view, view.size);
  emit_allgather(b, pat_pattern(b.size(), b.rank(), params.aggregate), OwnBlock::in_input);
  return std::move(b).finish();
}

}  // namespace tutti
