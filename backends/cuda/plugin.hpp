// The CUDA backend as the registry sees it. Includes no header of CUDA's.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "backends/backend.hpp"
#include "backends/cuda/device_engine.hpp"

namespace tutti::cuda {

// The ordinal of the device that owns the memory; -1 for memory of the host, and for any memory while the
// process does not use CUDA.
int device_of(const void* memory);
// Does the program use CUDA by now? Reads the list of loaded libraries if it has grown.
bool look_for_use();
// Of the calling thread's context; -1 without one.
int current_device();
// "CUDA 13.0, 2 devices: NVIDIA H100 80GB HBM3, ..."; unsupported, with the reason. Starts CUDA.
Result<std::string> describe_driver();
// See device_dispatch.hpp. `make_nccl`: NCCL's engine, or an error where this build has none.
Result<std::unique_ptr<DeviceBackend>> make_device_backend(GroupServices& services,
                                                           const DeviceOptions& options,
                                                           EngineFactory make_nccl);

}  // namespace tutti::cuda
