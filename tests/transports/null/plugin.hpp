// The null transport: makes it from settings, as every transport's plugin.hpp does.
// Knows no message.
#pragma once

#include <memory>

#include "runtime/base/status.hpp"
#include "transports/options.hpp"
#include "transports/transport.hpp"

namespace tutti {

// Ranks are threads of one process. Errors: none.
Result<std::unique_ptr<Transport>> make_null_transport(const TransportSettings& settings);

}  // namespace tutti
