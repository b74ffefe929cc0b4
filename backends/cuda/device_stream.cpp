// Device memory and a stream by the driver API, for programs.
#include "backends/cuda/device_stream.hpp"

#include <utility>

#include <fmt/format.h>

#include "backends/cuda/memory.hpp"
#include "backends/cuda/stream_event.hpp"

namespace tutti::cuda {

Result<int> count_devices() {
  const auto table = driver();
  if (!table) return table.status();
  auto count = count_devices(**table);
  if (count && *count == 0)
    return unsupported(
        "the CUDA driver shows no GPU; is one visible here (nvidia-smi, CUDA_VISIBLE_DEVICES)?");
  return count;
}

struct DeviceStream::Parts {
  const Driver& table;
  ContextScope context;
  Stream stream;
  std::string name;
};

DeviceStream::DeviceStream(std::unique_ptr<Parts> parts) : parts_(std::move(parts)) {}
DeviceStream::DeviceStream(DeviceStream&&) noexcept = default;
DeviceStream::~DeviceStream() = default;

Result<DeviceStream> DeviceStream::open(int device) {
  const auto table = driver();
  if (!table) return table.status();
  auto name = name_of_device(**table, device);
  if (!name) return name.status();
  auto context = ContextScope::enter(device);
  if (!context) return context.status();
  auto stream = Stream::create(device);
  if (!stream) return stream.status();
  return DeviceStream(
      std::make_unique<Parts>(Parts{**table, *std::move(context), *std::move(stream), *std::move(name)}));
}

void* DeviceStream::handle() const { return parts_->stream.get(); }
const std::string& DeviceStream::device_name() const { return parts_->name; }

Result<std::shared_ptr<void>> DeviceStream::allocate(std::size_t size_bytes) const {
  CUdeviceptr address = 0;
  TUTTI_RETURN_IF_CUDA_ERROR(
      parts_->table, parts_->table.cuMemAlloc(&address, size_bytes),
      fmt::format("cuMemAlloc of {} bytes on GPU {}", size_bytes, parts_->stream.device()));
  return std::shared_ptr<void>(pointer_to(address),
                               [&table = parts_->table, address](void*) { table.cuMemFree(address); });
}

Status DeviceStream::copy(void* to, const void* from, std::size_t size_bytes) const {
  TUTTI_RETURN_IF_ERROR(copy_async(to, from, size_bytes, parts_->stream.get()));
  return wait();
}

Status DeviceStream::fill(void* to, unsigned char value, std::size_t size_bytes) const {
  TUTTI_RETURN_IF_CUDA_ERROR(
      parts_->table, parts_->table.cuMemsetD8Async(address_of(to), value, size_bytes, parts_->stream.get()),
      fmt::format("cuMemsetD8Async of {} bytes", size_bytes));
  return wait();
}

Status DeviceStream::wait() const {
  return to_status(parts_->table, parts_->table.cuStreamSynchronize(parts_->stream.get()),
                   fmt::format("cuStreamSynchronize on GPU {}", parts_->stream.device()));
}

}  // namespace tutti::cuda
