// The engine `staged`: carries out calls on device memory on the host, by way of pinned memory.
// Knows no algorithm and no transport.
#pragma once

#include <memory>

#include "backends/cuda/device_engine.hpp"

namespace tutti::cuda {

// A call's stream holds a copy to the host, a wait, and a copy back. A thread of the engine starts each call
// that has arrived on `services.host()`, in the order of the calls, and releases the stream when that call is
// complete. So start() returns at once, and later work on the stream sees the result. Costs two copies over
// the bus of the device beside the host's call. The engine waits at its end for calls under way. Errors:
// unsupported, if streams of the device cannot wait for the host.
Result<std::unique_ptr<DeviceEngine>> make_staged_engine(GroupServices& services, int device);

}  // namespace tutti::cuda
