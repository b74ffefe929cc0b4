// The transport of ranks on several nodes that needs nothing but the kernel: TCP connections.
// Knows no message.
#pragma once

#include <memory>

#include "runtime/base/status.hpp"
#include "transports/options.hpp"
#include "transports/transport.hpp"

namespace tutti {

// Listens at the addresses of settings.interface; all usable ones if it is empty. Errors: unsupported (none
// of them can be listened at), resource_exhausted (descriptors), invalid_argument (no such interface).
Result<std::unique_ptr<Transport>> make_tcp_transport(const TransportSettings& settings);

}  // namespace tutti
