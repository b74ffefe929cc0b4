// The memory of a rank's GPU, and the stream that its calls are put on. Two files make it: cuda_memory.cpp,
// or without_cuda.cpp where CUDA is not in the build. Knows no collective.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "bench/harness/remote_memory.hpp"
#include "runtime/base/status.hpp"
#include "tutti/tutti.hpp"

namespace tutti::tool {

// Throws tutti::Error where the GPU or the group fails.
class GpuMemory : public bench::RemoteMemory {
 public:
  virtual std::shared_ptr<void> allocate(std::size_t bytes) = 0;
  virtual void* stream() const = 0;  // a cudaStream_t
  // Notes that a call on buffers of so many bytes was put on the stream. Waits where the copies in host
  // memory, if there are any, have no room for more.
  virtual void note_call(std::size_t buffer_bytes) = 0;
  virtual std::string description() const = 0;  // "GPU 0 of 8, NVIDIA H100 80GB HBM3"
};

// Errors of both: unsupported, with what is missing and what to do.
Result<int> count_gpus();
// Of the GPU with this rank's local number, modulo the number of GPUs, for the calling thread, which alone
// uses it. `sharers`: ranks in this process.
Result<std::unique_ptr<GpuMemory>> open_gpu(const CommGroup& group, int sharers);

}  // namespace tutti::tool
