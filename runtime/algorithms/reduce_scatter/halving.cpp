// Recursive halving reduce-scatter: partners at distance 1, 2, 4, ..., each keeps half of the blocks it still
// has; fewest rounds, any op.
// Knows nothing of transports, dtypes, time or memory.
//
// The far-first butterfly allgather backwards, so the largest messages go to the nearest ranks; the usual
// form halves the distance too and does the opposite. p = 5: rank 1 hands all it has to rank 0 and gets its
// block back finished; 0, 2, 3, 4 are v = 0..3 and keep the blocks of those v that agree with them in
// the low bits:
//               rank 0          rank 2         rank 3         rank 4     (blocks: contributions)
//   fold        0-4: 0,1        0-4: 2         0-4: 3         0-4: 4
//   distance 1  0 1 3: 0-2      2 4: 0-2       0 1 3: 3,4     2 4: 3,4
//   distance 2  0 1: all        2: all         3: all         4: all
//
// input: p blocks; output: own block; scratch: about 5/4 p blocks (folded: up to 5/2)
// messages: strided slices, several per message where folded
// rounds floor(log2 p) (+ 1 or 2 unless a power of two)
// bytes sent per rank (p-1)/p m (m folded)
// order: rank order.
// For medium vectors; direct needs no chain of additions but p-1 messages.
// Segments pay for large vectors.
// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005, distances reversed.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> reduce_scatter_halving(const CollectiveSpec& spec, const GroupView& view,
                                        const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_reduce_scatter(b, folded_butterfly_pattern(b.size(), b.rank(), ButterflyOrder::far_first, true),
                      PartialSums::in_scratch);
  return std::move(b).finish();
}

}  // namespace tutti
