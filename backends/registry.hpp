// The list of backends: which were built, and what carries calls on the memory of GPUs.
// The one place that knows every plug-in but the native backend, which its group makes; knows nothing of one
// but how to make it.
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

// What a backend of this build finds on this machine: "NCCL 2.27.3", "2 devices: ...". Errors: unsupported,
// with why it cannot be used. Loads libraries; for reports.
Result<std::string> probe_backend(std::string_view name);

// The CUDA ordinal of the device whose memory it is; -1 for memory of the host. Of a process in which nobody
// uses CUDA, a look at one flag: see look_for_cuda().
int device_of(const void* memory);
namespace detail {
extern std::atomic<bool> is_cuda_in_use;
}
inline bool is_cuda_in_use() { return detail::is_cuda_in_use.load(std::memory_order_relaxed); }
// Notices that the process has begun to use CUDA.
void look_for_cuda();
// The device that the calling thread uses; -1 if none.
int current_device();

// Carries calls on a device's memory through pinned memory of the host, by `services.host()`. Errors:
// unsupported, with the reason.
Result<std::unique_ptr<Backend>> make_staged_backend(GroupServices& services, int device);
// Kernels that reach the memory of all ranks, which share a machine. Collective, as the next.
Result<std::unique_ptr<Backend>> make_peer_backend(GroupServices& services, int device);
// Our schedules over memory of GPUs that all ranks reach; the same.
Result<std::unique_ptr<Backend>> make_mapped_backend(GroupServices& services, int device);
// NCCL, for this group and this device. Collective: all ranks get a backend, or all get an error
// (unsupported, with the reason and whose it is; or the group's failure).
Result<std::unique_ptr<Backend>> make_nccl_backend(GroupServices& services, int device);
// The same for a part of a group, whose `parent` make_nccl_backend() made: those of one color, in the order
// of `key`, are the group of `services`. Collective over the parent's group; ranks with a negative color get
// null. Waits for the parent's calls under way. Errors: the failure of the parent's group.
Result<std::unique_ptr<Backend>> split_nccl_backend(Backend& parent, GroupServices& services, int color,
                                                    int key);

}  // namespace tutti
