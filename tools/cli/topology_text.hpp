// A topology in a few lines for people. Knows the value only.
#pragma once

#include <string>

#include "topology/topology.hpp"

namespace tutti::tool {

// Five lines, each ended by '\n': source, cores, NUMA nodes, caches, allowed CPUs.
std::string describe(const Topology& topology);

// The CPU numbers of a range as the system writes them: "0-3,8-11".
std::string cpus_of(const Topology& topology, const PuRange& pus);

// The processor of this machine as the system names it, or "unknown".
std::string cpu_model();

}  // namespace tutti::tool
