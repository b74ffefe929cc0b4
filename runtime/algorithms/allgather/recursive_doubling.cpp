// Recursive doubling allgather: partners at distance 1, 2, 4, ..., each hands over the range of blocks it
// has.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5: rank 1 hands its block to rank 0 and gets the others at the end; 0, 2, 3, 4 exchange:
//               rank 0    rank 1     rank 2    rank 3    rank 4
//   fold        0-1       1          2         3         4
//   distance 1  0-2       1          0-2       3-4       3-4
//   distance 2  0-4       1          0-4       0-4       0-4
//   unfold      0-4       0-4        0-4       0-4       0-4
//
// input: own block; output: p blocks; no scratch; every message but the last is one range of blocks
// rounds floor(log2 p) (+ 1 or 2 unless a power of two)
// bytes sent per rank (p-1)/p m (folded: up to twice)
// The last messages are the largest and go farthest: for small and medium vectors; bruck needs no fold.
// Segments do not pay.
// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"

namespace tutti {

Result<Schedule> allgather_recursive_doubling(const CollectiveSpec& spec, const GroupView& view,
                                              const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  emit_allgather(b, folded_butterfly_pattern(b.size(), b.rank(), ButterflyOrder::near_first, false),
                 OwnBlock::in_input);
  return std::move(b).finish();
}

}  // namespace tutti
