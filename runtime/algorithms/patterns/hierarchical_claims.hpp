// Claims of the hierarchical rows, computed from the claims of the flat rows inside them and the sizes of the
// domains. Knows no builder and no emitted schedule.
#pragma once

#include "runtime/algorithms/catalog.hpp"

namespace tutti {

// Blocks that leave a domain are exact for every hierarchy (of gather and scatter, which depend on the root,
// for even domains). Rounds and blocks sent are exact where all domains are equally large. Elsewhere they are
// bounds, because the longest chain may not touch the largest domain.
HierarchyClaim hierarchical_allreduce_claim, hierarchical_barrier_claim, hierarchical_broadcast_claim,
    hierarchical_reduce_claim, hierarchical_allgather_claim, hierarchical_reduce_scatter_claim,
    hierarchical_alltoall_claim, hierarchical_gather_claim, hierarchical_scatter_claim;

}  // namespace tutti
