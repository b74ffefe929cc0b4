// Recursive doubling allreduce: whole vectors, partners at distance 1, 2, 4, ...; fewest rounds, any op.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 5: ranks 0 and 1 are one group (rank 1 folds into 0), so 4 groups led by 0, 2, 3, 4. Sums held by
//               rank 0    rank 1    rank 2    rank 3    rank 4
//   fold        0-1       .         2         3         4
//   distance 1  0-2       .         0-2       3-4       3-4
//   distance 2  0-4       .         0-4       0-4       0-4
//   unfold      0-4       0-4       0-4       0-4       0-4
//
// input, output: count elements; scratch: count
// rounds floor(log2 p) (+ 2 unless a power of two)
// bytes sent per rank m log2 p (+ m)
// order: rank order
// Segments do not pay: with vectors long enough to cut, rabenseifner or ring move less.
// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005; the fold keeps neighbours together.
#include "runtime/algorithms/patterns/recursive_exchange.hpp"

namespace tutti {

Result<Schedule> allreduce_recursive_doubling(const CollectiveSpec& spec, const GroupView& view,
                                              const AlgorithmParams&) {
  Builder b(spec, view, 1);
  emit_recursive_exchange(b, 2);
  return std::move(b).finish();
}

}  // namespace tutti
