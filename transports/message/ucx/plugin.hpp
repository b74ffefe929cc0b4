// The transport of ranks that UCX connects: InfiniBand, RoCE, TCP, and shared memory where UCX has it.
// Knows no configuration variable of tutti; UCX reads its own (UCX_*). Part of the module only.
#pragma once

#include <memory>

#include "runtime/base/status.hpp"
#include "transports/options.hpp"
#include "transports/transport.hpp"

namespace tutti {

// Errors: unsupported with UCX's reason if it has no device to use here or its configuration cannot be read.
Result<std::unique_ptr<Transport>> make_ucx_transport(const TransportSettings& settings);

}  // namespace tutti
