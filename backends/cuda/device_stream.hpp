// A stream of a GPU, and memory there, for programs that see no header of CUDA's: tools that measure.
// Knows no collective.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "runtime/base/status.hpp"

namespace tutti::cuda {

// The devices that the driver shows this process. Errors: unsupported, with the reason, also if there is
// none. Starts CUDA.
Result<int> count_devices();

// While it lives, its device is the one that the thread which opened it uses; only that thread may use it.
// copy() and fill() run behind earlier work of the stream, and are complete on return.
class DeviceStream {
 public:
  static Result<DeviceStream> open(int device);
  DeviceStream(DeviceStream&&) noexcept;
  DeviceStream& operator=(DeviceStream&&) = delete;
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  ~DeviceStream();

  void* handle() const;  // a cudaStream_t
  const std::string& device_name() const;
  // Freed with its last owner, in the same thread and before the stream. Errors: resource_exhausted.
  Result<std::shared_ptr<void>> allocate(std::size_t size_bytes) const;
  // Either side is memory of the device or of the host.
  Status copy(void* to, const void* from, std::size_t size_bytes) const;
  Status fill(void* to, unsigned char value, std::size_t size_bytes) const;
  // Until the stream is past all that it was given.
  Status wait() const;

 private:
  struct Parts;
  explicit DeviceStream(std::unique_ptr<Parts> parts);
  std::unique_ptr<Parts> parts_;
};

}  // namespace tutti::cuda
