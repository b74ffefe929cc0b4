// Rabenseifner's reduce: a reduce-scatter, then a gather of the finished blocks up a binomial tree.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 4, root 0:   every rank adds up its own block       ranks 0 1 2 3: block 0, 1, 2, 3
//                  1 -> 0, 3 -> 2, then 2 and 3 -> 0      rank 0: all
// The reduce-scatter is the circulant one, which needs no power of two.
//
// input: count elements; output (root): count elements; scratch: about 3/2 vectors
// rounds at most 2 ceil(log2 p)
// bytes sent per rank at most about 3/2 m, received by the root 2(p-1)/p m
// order: rotated per block -> needs a commutative op
// Source: Thakur, Rabenseifner, Gropp, IJHPCA 2005; Träff, arXiv 2410.14234.
#include "runtime/algorithms/patterns/allgather_patterns.hpp"
#include "runtime/algorithms/patterns/spread.hpp"

namespace tutti {

Result<Schedule> reduce_rabenseifner(const CollectiveSpec& spec, const GroupView& view,
                                     const AlgorithmParams&) {
  Builder b(spec, view, view.size);
  const ExchangePattern pattern = window_pattern(b.size(), b.rank(), circulant_windows(b.size()));
  const Slice sum = emit_reduce_scatter(b, pattern, PartialSums::all_in_scratch);
  emit_gather(b, knomial_scatter_moves(spread_view(b), 2), sum);
  return std::move(b).finish();
}

}  // namespace tutti
