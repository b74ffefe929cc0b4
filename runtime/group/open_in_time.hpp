// Opens a transport within a deadline, even if its library takes longer. Knows no transport by name.
#pragma once

#include <functional>
#include <memory>

#include "runtime/base/work.hpp"
#include "transports/transport.hpp"

namespace tutti {

using OpenTransport = std::function<Result<std::unique_ptr<Transport>>()>;

// Calls `open` on a new thread, since libraries have no deadlines, and returns its result. `open` must own
// all that it refers to: after the deadline it is abandoned, and destroys its result itself. Errors: timeout;
// resource_exhausted if there is no thread.
Result<std::unique_ptr<Transport>> open_in_time(OpenTransport open, Clock::time_point deadline);

}  // namespace tutti
