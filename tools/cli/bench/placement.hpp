// Binding ranks to CPUs. Knows no group.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/status.hpp"

namespace tutti::tool {

// The CPUs that this thread may use, one of every core first and the cores' further hardware threads after
// them.
std::vector<int> allowed_cpus_by_core();

// Binds the calling thread (and the threads it starts later) to the CPU for that rank of this node. Ranks
// that outnumber the CPUs are dealt to them in turn. Errors: unsupported if the system refuses.
Status bind_to_core(int local_rank, const std::vector<int>& cpus);

}  // namespace tutti::tool
