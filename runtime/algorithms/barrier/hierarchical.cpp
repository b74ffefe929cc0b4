// Hierarchical barrier: every domain reports to its first member, those meet, and each lets its domain go.
// Knows nothing of transports, dtypes, time or memory; which ranks share a domain it is told.
//
// p = 5, domains {0 1} {2 3 4}:   1 -> 0, 3 -> 2, 4 -> 2    then 0 <-> 2    then 0 -> 1, 2 -> 3, 2 -> 4
//
// One empty atom, so that a message is a flag: an allreduce with one leader per domain.
// rounds 2 and those of a dissemination over the domains; bytes 0.
#include "runtime/algorithms/patterns/leaders.hpp"

namespace tutti {

Result<Schedule> barrier_hierarchical(const CollectiveSpec& spec, const GroupView& view,
                                      const AlgorithmParams&) {
  AlgorithmParams one_leader;
  one_leader.leaders = 1;
  return emit_hierarchical_allreduce(spec, view, one_leader);
}

}  // namespace tutti
