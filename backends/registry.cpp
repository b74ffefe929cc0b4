// Which backends were built. Knows of each only how to make it.
#include "backends/registry.hpp"

#include <array>

#include <fmt/format.h>

#include "tutti_config.hpp"

#if TUTTI_HAVE_CUDA
#include "backends/cuda/plugin.hpp"
#endif
#if TUTTI_HAVE_NCCL
#include "backends/nccl/plugin.hpp"
#endif

namespace tutti {
namespace {

constexpr std::array kBackendEntries = {
    BackendEntry{"native", TUTTI_REASON_BACKEND_NATIVE},
    BackendEntry{"cuda", TUTTI_REASON_CUDA},
    BackendEntry{"nccl", TUTTI_REASON_NCCL},
};

Status not_built(std::string_view name, std::string_view reason) {
  return unsupported(fmt::format("{} is not in this build: {}", name, reason));
}

}  // namespace

namespace detail {
std::atomic<bool> is_cuda_in_use{false};
}

std::span<const BackendEntry> backend_entries() { return kBackendEntries; }

Result<std::string> probe_backend(std::string_view name) {
#if TUTTI_HAVE_CUDA
  if (name == "cuda") return cuda::describe_driver();
#endif
#if TUTTI_HAVE_NCCL
  if (name == "nccl") return nccl::describe_library();
#endif
  for (const BackendEntry& entry : kBackendEntries) {
    if (entry.name == name && !entry.missing.empty()) return not_built(name, entry.missing);
  }
  return std::string();
}

#if TUTTI_HAVE_CUDA

int device_of(const void* memory) { return cuda::device_of(memory); }

void look_for_cuda() {
  if (!is_cuda_in_use() && cuda::look_for_use())
    detail::is_cuda_in_use.store(true, std::memory_order_relaxed);
}

int current_device() { return cuda::current_device(); }

Result<std::unique_ptr<DeviceBackend>> make_device_backend(GroupServices& services,
                                                           const DeviceOptions& options) {
#if TUTTI_HAVE_NCCL
  constexpr cuda::EngineFactory kMakeNccl = nccl::make_engine;
#else
  constexpr cuda::EngineFactory kMakeNccl = [](GroupServices&,
                                               int) -> Result<std::unique_ptr<cuda::DeviceEngine>> {
    return not_built("nccl", TUTTI_REASON_NCCL);
  };
#endif
  return cuda::make_device_backend(services, options, kMakeNccl);
}

#else

int device_of(const void* /*memory*/) { return -1; }
void look_for_cuda() {}
int current_device() { return -1; }

Result<std::unique_ptr<DeviceBackend>> make_device_backend(GroupServices& /*services*/,
                                                           const DeviceOptions& /*options*/) {
  return not_built("cuda", TUTTI_REASON_CUDA);
}

#endif

}  // namespace tutti
