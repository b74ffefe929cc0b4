// The engine `nccl`: calls on the memory of one GPU per rank, carried out by NCCL.
// Knows of a group only its GroupServices.
#pragma once

#include <memory>

#include "backends/cuda/device_engine.hpp"

namespace tutti::nccl {

// An EngineFactory: each rank with its own device. Errors beside the group's failure are unsupported, and name
// the rank: two ranks on one GPU, which NCCL refuses; no library, or another version; NCCL's own.
// Starting a call never waits for the device; the first call of a kind may wait for NCCL to connect the ranks.
// split() uses ncclCommSplit: the parts reuse the parent's knowledge of the network and share nothing else.
Result<std::unique_ptr<cuda::DeviceEngine>> make_nccl_engine(GroupServices& services, int device);

}  // namespace tutti::nccl
