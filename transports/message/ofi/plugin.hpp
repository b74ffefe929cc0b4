// The transport of ranks that libfabric connects: TCP, Omni-Path, EFA, Slingshot, InfiniBand.
// Knows no configuration variable; libfabric reads its own (FI_*). Part of the module only.
#pragma once

#include <memory>

#include "runtime/base/status.hpp"
#include "transports/options.hpp"
#include "transports/transport.hpp"

namespace tutti {

// Errors: unsupported with libfabric's reason if it has no provider to use here.
Result<std::unique_ptr<Transport>> make_ofi_transport(const TransportSettings& settings);

}  // namespace tutti
