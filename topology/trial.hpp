// Tries in a child process what may crash or take too long, before this process does it.
// Knows no topology.
#pragma once

#include <chrono>
#include <functional>

#include "runtime/base/status.hpp"

namespace tutti::detail {

// Runs `work` in a child of fork(), which ends without a trace, and sets `outcome` to its result (messages are cut
// to 2,000 bytes). Errors: invalid_argument where the child crashes, aborts, or takes longer than `at_most`;
// resource_exhausted where there can be no child. Cost: a fork().
Status try_in_child(const std::function<Status()>& work, std::chrono::milliseconds at_most, Status* outcome);

}  // namespace tutti::detail
