// Carries calls on device memory by way of pinned host memory: stream -> host -> the host's backend ->
// stream. Knows no algorithm and no transport.
#pragma once

#include <memory>

#include "backends/backend.hpp"

namespace tutti::cuda {

// A call's stream holds a copy to the host, a wait, and a copy back; a thread of the backend's own hands what
// has arrived to `services.host()`, in the order of the calls, and lets the stream go on once that is
// complete. So a call returns at once, and what the program puts on the stream behind it sees the result.
// Costs two copies over the device's bus beside what the host's backend needs. `services` outlives the
// backend, which waits at its end for the calls under way.
std::unique_ptr<Backend> make_staged_backend(GroupServices& services);

}  // namespace tutti::cuda
