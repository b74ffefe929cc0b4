// What the hierarchical rows claim, from the claims of the flat rows they are made of and the sizes of the
// domains. Knows no builder: nothing here looks at what is emitted.
#pragma once

#include "runtime/algorithms/catalog.hpp"

namespace tutti {

// Blocks that leave a domain are exact for every hierarchy (of gather and scatter, where they depend on the
// root, for even domains). Rounds and blocks sent are exact where all domains are equally large, else bounds:
// not every longest chain starts and ends in a domain that has more to do.
HierarchyClaim hierarchical_allreduce_claim, hierarchical_barrier_claim, hierarchical_broadcast_claim,
    hierarchical_reduce_claim, hierarchical_allgather_claim, hierarchical_reduce_scatter_claim,
    hierarchical_alltoall_claim, hierarchical_gather_claim, hierarchical_scatter_claim;

}  // namespace tutti
