// Kernels that were compiled for the host, by name.
// Knows nothing of streams: whoever calls run() is the device.
#pragma once

#include <cstddef>
#include <string_view>

namespace cuda_stand_in {

// Every kernel has one parameter, a struct.
struct HostKernel {
  std::string_view name;
  std::size_t parameter_bytes;
  // All blocks, one after the other, each of one thread.
  void (*run)(const void* parameters, unsigned blocks);
};

const HostKernel* find_host_kernel(std::string_view name);

}  // namespace cuda_stand_in
