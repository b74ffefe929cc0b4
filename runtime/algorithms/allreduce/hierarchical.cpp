// Hierarchical allreduce: sums inside of each domain, one allreduce across domains for each leader's share, and
// the results back to all mates.
// Knows nothing of transports, dtypes, time or memory; the hierarchy is an argument.
//
// p = 5, domains {0 1} {2 3 4}, 2 leaders; the contributions in the leaders' shares L and H:
//            rank 0     rank 1     rank 2     rank 3     rank 4
//   domain   L: 0-1     H: 0-1     L: 2-4     H: 2-4     .
//   across   L: all     H: all     L: all     H: all     .
//   domain   all        all        all        all        all
//
// input, output: count elements; scratch: in the domain (n-1)/leaders of the vector, and the row across's
// rounds 2 and those of the row across (fewer where domains are uneven)
// bytes sent per rank in the domain up to (leaders + n - 2)/leaders m; those of the row across, of m/leaders
// bytes that leave a domain those of the row across, of m, whatever the number of leaders
// order: rank order inside, domain order across -> any op where domains are ranges of ranks
// Leaders: many work side by side for long vectors; one sends a single message, for short vectors.
// Source: multi-leader hierarchies (Open MPI HAN, DPML, NCCL's tree of chains, DeepSpeed's two-level
//   allreduce).
#include "runtime/algorithms/patterns/leaders.hpp"

namespace tutti {

Result<Schedule> allreduce_hierarchical(const CollectiveSpec& spec, const GroupView& view,
                                        const AlgorithmParams& params) {
  return emit_hierarchical_allreduce(spec, view, params);
}

}  // namespace tutti
