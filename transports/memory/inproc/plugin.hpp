// The transport of ranks that are threads of one process: the reference, without system calls on its way.
// Knows no other process; fabric members reach each other's memory by pointer.
#pragma once

#include <memory>

#include "runtime/base/status.hpp"
#include "transports/options.hpp"
#include "transports/transport.hpp"

namespace tutti {

std::shared_ptr<InprocFabric> make_inproc_fabric();

// One instance per rank; those of one fabric reach each other. The fabric lives as long as its members.
Result<std::unique_ptr<Transport>> make_inproc_transport(std::shared_ptr<InprocFabric> fabric,
                                                         const MemoryOptions& options = {});

}  // namespace tutti
