// What the registry of backends sees of CUDA. Knows no header of CUDA's.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "backends/backend.hpp"

namespace tutti::cuda {

// The ordinal of the device whose memory it is; -1 for memory of the host, and for all of it as long as
// nobody in the process uses CUDA.
int device_of(const void* memory);
// Does the program use CUDA by now? A look at the list of loaded libraries, if that has grown.
bool look_for_use();
// Of the calling thread's context; -1 without one.
int current_device();
// "CUDA 13.0, 2 devices: NVIDIA H100 80GB HBM3, ..."; unsupported, with the reason. Starts CUDA.
Result<std::string> describe_driver();
// See staged_backend.hpp. Errors: unsupported, if streams of the device cannot wait for the host.
Result<std::unique_ptr<Backend>> make_staged_backend(GroupServices& services, int device);
// See peer_backend.hpp.
Result<std::unique_ptr<Backend>> make_peer_backend(GroupServices& services, int device);
Result<std::unique_ptr<Backend>> make_mapped_backend(GroupServices& services, int device);

}  // namespace tutti::cuda
