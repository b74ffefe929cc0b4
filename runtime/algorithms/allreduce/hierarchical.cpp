// Hierarchical allreduce: sums inside of each domain, an allreduce of every column across domains, and the
// results back to all mates.
// Knows nothing of transports, dtypes, time or memory; which ranks share a domain it is told.
//
// p = 5, domains {0 1} {2 3 4}, 2 columns; contributions held by the carriers of the halves L and H:
//            rank 0     rank 1     rank 2     rank 3     rank 4
//   domain   L: 0-1     H: 0-1     L: 2-4     H: 2-4     .
//   across   L: all     H: all     L: all     H: all     .
//   domain   all        all        all        all        all
//
// input, output: count elements; scratch: in the domain (n-1)/columns of the vector, and the row across's
// rounds 2 and those of the row across (fewer where domains are uneven)
// bytes sent per rank in the domain up to (columns + n - 2)/columns m; those of the row across, of m/columns
// bytes that leave a domain those of the row across, of m, whatever the number of columns
// order: rank order inside, domain order across -> any op where domains are ranges of ranks
// Columns: all carriers share the way out where they can work side by side; one column (a leader) is one
//   message instead of many, for short vectors.
// Source: multi-leader and column hierarchies (Open MPI HAN, NCCL's tree of chains, DeepSpeed's two-level
//   allreduce).
#include "runtime/algorithms/patterns/columns.hpp"

namespace tutti {

Result<Schedule> allreduce_hierarchical(const CollectiveSpec& spec, const GroupView& view,
                                        const AlgorithmParams& params) {
  return emit_hierarchical_allreduce(spec, view, params);
}

}  // namespace tutti
