// Bruck allgather: a window of blocks that grows by the factor `radix` per round, for any p.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5, radix 2, blocks held by rank r, relative to r: 0 -> 0..1 (from r+1) -> 0..3 (from r+2) -> 0..4
// (block r+4 from r+4). With radix k a round takes k-1 windows, from r+n, r+2n, ...; blocks land in their
// places, so there is no rotation at the end.
//
// input: own block; output: p blocks; no scratch
// rounds up to ceil(log_radix p), radix-1 messages each
// bytes sent per rank (p-1)/p m
// For small vectors; larger radices where messages are cheap. Segments do not pay.
// Source: Bruck et al., IEEE TPDS 1997.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> allgather_bruck(const CollectiveSpec& spec, const GroupView& view,
                                 const AlgorithmParams& params) {
  Builder b(spec, view, view.size);
  emit_allgather(b, window_pattern(b.size(), b.rank(), bruck_windows(b.size(), params.radix)),
                 OwnBlock::in_input);
  return std::move(b).finish();
}

}  // namespace tutti
