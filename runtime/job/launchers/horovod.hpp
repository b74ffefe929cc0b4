// The environment that horovodrun gives its processes when it works with Gloo. Knows no protocol.
#pragma once

#include "runtime/base/config.hpp"
#include "runtime/base/status.hpp"
#include "runtime/job/launchers/launch.hpp"

namespace tutti::detail {

// The store is Horovod's rendezvous server. Errors: invalid_argument, naming the variable.
Result<LaunchInfo> launch_from_horovod(const Environment& environment, Clock::time_point deadline);

}  // namespace tutti::detail
