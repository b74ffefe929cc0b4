// CUDA as the registry sees it.
#include "backends/cuda/plugin.hpp"

#include <fmt/format.h>
#include <link.h>

#include "backends/cuda/device_dispatch.hpp"
#include "backends/cuda/memory.hpp"

namespace tutti::cuda {
namespace {

// How many libraries have been loaded so far.
unsigned long long loaded_libraries() {
  unsigned long long count = 0;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* out) {
        *static_cast<unsigned long long*>(out) = info->dlpi_adds;
        return 1;  // each says the same
      },
      &count);
  return count;
}

}  // namespace

int device_of(const void* memory) {
  const MemoryLocation location = location_of(memory);
  return location.is_device ? location.device : -1;
}

bool look_for_use() {
  static std::atomic<unsigned long long> seen{0};
  const unsigned long long now = loaded_libraries();
  if (seen.exchange(now, std::memory_order_relaxed) != now) probe();
  return driver_in_use() != nullptr;
}

int current_device() {
  const Driver* const table = driver_in_use();
  CUdevice device = -1;
  return table != nullptr && table->cuCtxGetDevice(&device) == CUDA_SUCCESS ? device : -1;
}

Result<std::string> describe_driver() {
  const auto table = driver();
  if (!table) return table.status();
  const auto count = count_devices(**table);
  if (!count) return count.status();
  std::string text = fmt::format("CUDA {}.{}, {} device{}", (*table)->version / 1000,
                                 (*table)->version % 1000 / 10, *count, *count == 1 ? "" : "s");
  for (int device = 0; device < *count; ++device) {
    const auto name = name_of_device(**table, device);
    if (!name) return name.status();
    text += fmt::format("{}{}", device == 0 ? ": " : ", ", *name);
  }
  return text;
}

Result<std::unique_ptr<DeviceBackend>> make_device_backend(GroupServices& services,
                                                           const DeviceOptions& options,
                                                           EngineFactory make_nccl) {
  return std::unique_ptr<DeviceBackend>(std::make_unique<DeviceDispatch>(services, options, make_nccl));
}

}  // namespace tutti::cuda
