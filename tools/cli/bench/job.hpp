// Facts that the ranks of a job find out before they measure: nodes, CPUs, transports, and the page on which
// the ranks of a node meet. Knows no measurement.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/harness/shared_page.hpp"
#include "tutti/tutti.hpp"

namespace tutti::tool {

// All of these are collective over the group.

int count_nodes(const CommGroup& group);
// Of the node: what its ranks may use together, also where the launcher gave each its own. `cpus`: those that
// this rank was allowed when it started.
int count_cpus(const CommGroup& group, const std::vector<int>& cpus);
// The page of rank 0, opened by every rank of the node; nullopt on every rank if one of them cannot.
std::optional<bench::SharedPage> open_page(const CommGroup& group);
// How the members of the group reach each other: "shm", or "inproc+ofi" where it differs; "self" if there is
// nobody. The public interface does not say it, so this looks behind it.
std::string transports_of(const CommGroup& group);

}  // namespace tutti::tool
