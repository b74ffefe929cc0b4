// The transport of ranks on one node: memfd segments, passed over an abstract unix socket.
// Knows no network; nothing of it is visible in the file system.
#pragma once

#include <memory>

#include "runtime/base/status.hpp"
#include "transports/options.hpp"
#include "transports/transport.hpp"

namespace tutti {

// Errors: resource_exhausted (memory, descriptors, with the limit), unsupported (no memfd or no abstract
// sockets here; the message says which).
Result<std::unique_ptr<Transport>> make_shm_transport(const ShmOptions& options = {});

// Registers this process for memory barriers, which takes some 15 ms once it has several threads. Opening a transport
// does it too.
void prepare_shm_process();

}  // namespace tutti
