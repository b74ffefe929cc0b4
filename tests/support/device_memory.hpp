// Memory of a device, for tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include "backends/cuda/driver.hpp"
#include "backends/cuda/memory.hpp"

namespace tutti::test {

// Freed at the end. At least a byte, so that there is an address.
class DeviceMemory {
 public:
  DeviceMemory(int device, std::size_t size_bytes) : device_(device) {
    const auto context = cuda::ContextScope::enter(device);
    if (!context ||
        (*cuda::driver())->cuMemAlloc(&address_, std::max<std::size_t>(1, size_bytes)) != CUDA_SUCCESS)
      throw std::runtime_error("no device memory for the test");
  }
  ~DeviceMemory() {
    const auto context = cuda::ContextScope::enter(device_);
    (*cuda::driver())->cuMemFree(address_);
  }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(cuda::pointer_to(address_)); }

 private:
  const int device_;
  CUdeviceptr address_ = 0;
};

}  // namespace tutti::test
