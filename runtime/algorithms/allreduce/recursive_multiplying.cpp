// Recursive multiplying allreduce: recursive doubling with groups of `radix`, each of whose members hears all
// the others at once; fewer rounds for more messages.
// Knows nothing of transports, dtypes, time or memory.
//
// p = 9, radix 3: {0,1,2} {3,4,5} {6,7,8} exchange and add, then {0,3,6} {1,4,7} {2,5,8}. Other p fold into
// the largest power of radix below: p = 11 into 9 groups, {0,1} {2,3} {4} ... {10}. A radix above p is p.
//
// input, output: count elements; scratch: (radix - 1) * count
// rounds floor(log_radix p) (+ 2)
// bytes sent per rank (radix - 1) m floor(log_radix p) (+ m per folded rank)
// order: rank order.
// Segments do not pay (small vectors only).
// Source: Ruefenacht, Bull, Booth, Parallel Computing 2017 (recursive multiplying); MPICH recexch.
#include "runtime/algorithms/patterns/recursive_exchange.hpp"

namespace tutti {

Result<Schedule> allreduce_recursive_multiplying(const CollectiveSpec& spec, const GroupView& view,
                                                 const AlgorithmParams& params) {
  Builder b(spec, view, 1);
  emit_recursive_exchange(b, params.radix);
  return std::move(b).finish();
}

}  // namespace tutti
