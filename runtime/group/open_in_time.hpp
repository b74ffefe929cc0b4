// Opens a transport whose library may take its time, within a deadline. Knows no transport by name.
#pragma once

#include <functional>
#include <memory>

#include "runtime/base/work.hpp"
#include "transports/transport.hpp"

namespace tutti {

using OpenTransport = std::function<Result<std::unique_ptr<Transport>>()>;

// Calls `open` on a thread of its own, since libraries know no deadlines, and returns what it returns. `open`
// must own all that it refers to: after the deadline nobody waits for it, and what it makes then is destroyed
// there. Errors: timeout; resource_exhausted if there is no thread.
Result<std::unique_ptr<Transport>> open_in_time(OpenTransport open, Clock::time_point deadline);

}  // namespace tutti
