// Classification of pointers, primary contexts and the pool of pinned memory, by the driver API.
// Knows no stream but the one that a copy is put on.
#include "backends/cuda/memory.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>

namespace tutti::cuda {
namespace {

constexpr std::size_t kSmallestPinned = 4096;

// The primary context of a device, retained by the first call; null with the reason in `failure`.
Result<CUcontext> primary_context(const Driver& table, int device) {
  static std::mutex mutex;
  static std::map<int, CUcontext> contexts;
  const std::lock_guard lock(mutex);
  if (const auto found = contexts.find(device); found != contexts.end()) return found->second;
  CUdevice handle = 0;
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuDeviceGet(&handle, device),
                             "cuDeviceGet(" + std::to_string(device) + ")");
  CUcontext context = nullptr;
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuDevicePrimaryCtxRetain(&context, handle),
                             "cuDevicePrimaryCtxRetain of device " + std::to_string(device));
  contexts.emplace(device, context);
  return context;
}

}  // namespace

MemoryLocation location_of(const void* pointer) {
  const Driver* table = driver_in_use();
  if (table == nullptr || pointer == nullptr) return {};
  // The plural form takes any pointer: attributes of memory that is not CUDA's are zero.
  unsigned type = 0;
  unsigned is_managed = 0;  // one byte is written
  int device = -1;
  std::array<CUpointer_attribute, 3> attributes = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
  std::array<void*, 3> values = {&type, &is_managed, &device};
  // Fails before cuInit: then nothing is a device's.
  if (table->cuPointerGetAttributes(attributes.size(), attributes.data(), values.data(),
                                    address_of(pointer)) != CUDA_SUCCESS) {
    return {};
  }
  if (type != CU_MEMORYTYPE_DEVICE && is_managed == 0) return {};
  return {true, device};
}

Result<ContextScope> ContextScope::enter(int device) {
  const Result<const Driver*> loaded = driver();
  if (!loaded) return loaded.status();
  const Driver& table = **loaded;
  const Result<CUcontext> context = primary_context(table, device);
  if (!context) return context.status();
  CUcontext current = nullptr;
  if (table.cuCtxGetCurrent(&current) == CUDA_SUCCESS && current == *context) return ContextScope(nullptr);
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuCtxPushCurrent(*context), "cuCtxPushCurrent");
  return ContextScope(&table);
}

ContextScope::~ContextScope() {
  CUcontext ignored = nullptr;
  if (table_ != nullptr) table_->cuCtxPopCurrent(&ignored);
}

Status enable_peer_access(int device, int peer) {
  if (device == peer) return {};
  const Result<ContextScope> scope = ContextScope::enter(device);
  if (!scope) return scope.status();
  const Driver& table = **driver();
  const std::string between = " of device " + std::to_string(device) + " to device " + std::to_string(peer);
  int can = 0;
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuDeviceCanAccessPeer(&can, device, peer),
                             "cuDeviceCanAccessPeer" + between);
  if (can == 0) return unsupported("there is no direct access" + between);
  const Result<CUcontext> context = primary_context(table, peer);
  if (!context) return context.status();
  const CUresult result = table.cuCtxEnablePeerAccess(*context, 0);
  if (result == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED) return {};
  return to_status(table, result, "cuCtxEnablePeerAccess" + between);
}

Status copy_async(void* dst, const void* src, std::size_t size_bytes, CUstream stream) {
  const Result<const Driver*> loaded = driver();
  if (!loaded) return loaded.status();
  if (size_bytes == 0 || dst == src) return {};
  return to_status(**loaded, (*loaded)->cuMemcpyAsync(address_of(dst), address_of(src), size_bytes, stream),
                   "cuMemcpyAsync of " + std::to_string(size_bytes) + " bytes");
}

PinnedBuffer::~PinnedBuffer() {
  if (pool_ != nullptr) pool_->give_back(data_, size_bytes_);
}

PinnedPool::~PinnedPool() { free_idle(~std::size_t{0}); }

Result<PinnedBuffer> PinnedPool::take(std::size_t size_bytes) {
  const Result<const Driver*> loaded = driver();
  if (!loaded) return loaded.status();
  if (size_bytes > limit_bytes_) {
    return Status(StatusCode::resource_exhausted,
                  std::to_string(size_bytes) + " bytes of pinned memory pass the limit of " +
                      std::to_string(limit_bytes_) + "; stage in smaller pieces");
  }
  const std::size_t rounded =
      std::min(std::bit_ceil(std::max(size_bytes, kSmallestPinned)), std::max(limit_bytes_, kSmallestPinned));
  const std::lock_guard lock(mutex_);
  if (const auto found = idle_.find(rounded); found != idle_.end() && !found->second.empty()) {
    void* data = found->second.back();
    found->second.pop_back();
    return PinnedBuffer(this, data, rounded);
  }
  if (pinned_bytes_ + rounded > limit_bytes_) free_idle(pinned_bytes_ + rounded - limit_bytes_);
  if (pinned_bytes_ + rounded > limit_bytes_) {
    return Status(StatusCode::resource_exhausted,
                  "all " + std::to_string(limit_bytes_) + " bytes of pinned memory are in use");
  }
  void* data = nullptr;
  TUTTI_RETURN_IF_CUDA_ERROR(**loaded, (*loaded)->cuMemHostAlloc(&data, rounded, CU_MEMHOSTALLOC_PORTABLE),
                             "cuMemHostAlloc of " + std::to_string(rounded) + " bytes");
  pinned_bytes_ += rounded;
  return PinnedBuffer(this, data, rounded);
}

std::size_t PinnedPool::pinned_bytes() const {
  const std::lock_guard lock(mutex_);
  return pinned_bytes_;
}

void PinnedPool::give_back(void* data, std::size_t size_bytes) {
  const std::lock_guard lock(mutex_);
  idle_[size_bytes].push_back(data);
}

// Frees idle buffers, the largest first, until `wanted_bytes` are free or none is left.
void PinnedPool::free_idle(std::size_t wanted_bytes) {
  const Result<const Driver*> loaded = driver();
  if (!loaded) return;
  std::size_t freed_bytes = 0;
  for (auto size = idle_.rbegin(); size != idle_.rend(); ++size) {
    while (!size->second.empty() && freed_bytes < wanted_bytes) {
      (*loaded)->cuMemFreeHost(size->second.back());
      size->second.pop_back();
      freed_bytes += size->first;
      pinned_bytes_ -= size->first;
    }
  }
}

}  // namespace tutti::cuda
