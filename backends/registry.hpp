// The list of backends: which were built, and how the device backend is made.
// The one place that knows every plug-in but the native backend, which its group makes.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backends/backend.hpp"
#include "runtime/base/status.hpp"

namespace tutti {

struct BackendEntry {
  std::string_view name;
  std::string_view missing;  // why it was not built; empty if it was
};

// Every backend of this source tree, also those left out of this build.
std::span<const BackendEntry> backend_entries();

// The library of a backend on this machine: "NCCL 2.27.3", "2 devices: ...". Errors: unsupported, with the
// reason. Loads libraries; for reports.
Result<std::string> probe_backend(std::string_view name);

// The CUDA ordinal of the device that owns the memory; -1 for memory of the host. Reads one flag in a process
// that does not use CUDA: see look_for_cuda().
int device_of(const void* memory);
namespace detail {
extern std::atomic<bool> is_cuda_in_use;
}
inline bool is_cuda_in_use() { return detail::is_cuda_in_use.load(std::memory_order_relaxed); }
// Notices that the process has begun to use CUDA.
void look_for_cuda();
// The device that the calling thread uses; -1 if none.
int current_device();

// Local; nothing communicates before the first call. Errors: unsupported, if CUDA is not in this build.
Result<std::unique_ptr<DeviceBackend>> make_device_backend(GroupServices& services,
                                                           const DeviceOptions& options);

}  // namespace tutti
