// The stand-in's memory: allocation in a device's file, pinned and managed memory, attributes, and handles
// for other processes.
#include <fcntl.h>
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/support/cuda_stand_in/state.hpp"

namespace cuda_stand_in {
namespace {

constexpr std::size_t kAlignment = 512;

// Content of a CUipcMemHandle: memory of a device's file, which others open through /proc.
struct IpcHandle {
  pid_t process;
  int file;
  std::size_t offset;
  std::size_t size_bytes;
  std::size_t file_bytes;
  int device;
};
static_assert(sizeof(IpcHandle) <= sizeof(CUipcMemHandle));

std::uintptr_t number_of(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer); }

// First fit; the offset, or the size of the device where there is no room. The caller holds the lock.
std::size_t find_room(const Device& device, std::size_t size_bytes) {
  std::size_t start = 0;
  for (const auto& [offset, used_bytes] : device.used) {
    if (offset - start >= size_bytes) return start;
    start = (offset + used_bytes + kAlignment - 1) / kAlignment * kAlignment;
  }
  return start <= device.size_bytes && device.size_bytes - start >= size_bytes ? start : device.size_bytes;
}

CUresult allocate(CUdeviceptr* address, std::size_t size_bytes, bool is_managed) {
  Device* device = current_device();
  if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (size_bytes == 0) return CUDA_ERROR_INVALID_VALUE;
  const std::lock_guard lock(state().mutex);
  if (device->error != CUDA_SUCCESS) return device->error;
  const std::size_t offset = find_room(*device, size_bytes);
  if (offset == device->size_bytes) return CUDA_ERROR_OUT_OF_MEMORY;
  if (device->used.empty()) ASAN_POISON_MEMORY_REGION(device->base, device->size_bytes);
  device->used[offset] = size_bytes;
  std::byte* data = device->base + offset;
  ASAN_UNPOISON_MEMORY_REGION(data, size_bytes);
  std::memset(data, 0xA5, size_bytes);  // device memory is not zero
  state().ranges[number_of(data)] = {size_bytes, CU_MEMORYTYPE_DEVICE, is_managed, device->context.device};
  *address = number_of(data);
  return CUDA_SUCCESS;
}

// Everything given to the streams of a device so far is done, as freeing its memory has it.
void drain(int device) {
  std::vector<std::shared_ptr<Mark>> marks;
  {
    const std::lock_guard lock(state().mutex);
    for (const auto& weak : state().devices[static_cast<std::size_t>(device)]->queues) {
      if (const auto queue = weak.lock(); queue != nullptr && !queue->is_idle())
        marks.push_back(queue->mark());
    }
  }
  for (const auto& mark : marks) mark->wait();
}

}  // namespace

Range range_of(const void* pointer, std::uintptr_t* base) {
  const std::lock_guard lock(state().mutex);
  auto found = state().ranges.upper_bound(number_of(pointer));
  if (found == state().ranges.begin()) return {};
  --found;
  if (number_of(pointer) - found->first >= found->second.size_bytes) return {};
  if (base != nullptr) *base = found->first;
  return found->second;
}

}  // namespace cuda_stand_in

using namespace cuda_stand_in;

STAND_IN_API CUresult cuMemAlloc(CUdeviceptr* address, std::size_t size_bytes) {
  STAND_IN_ENTER(cuMemAlloc)
  return allocate(address, size_bytes, false);
}

STAND_IN_API CUresult cuMemAllocManaged(CUdeviceptr* address, std::size_t size_bytes, unsigned) {
  STAND_IN_ENTER(cuMemAllocManaged)
  return allocate(address, size_bytes, true);
}

STAND_IN_API CUresult cuMemFree(CUdeviceptr address) {
  STAND_IN_ENTER(cuMemFree)
  std::uintptr_t base = 0;
  const Range range = range_of(pointer_of(address), &base);
  if (range.type != CU_MEMORYTYPE_DEVICE || base != address) return CUDA_ERROR_INVALID_VALUE;
  drain(range.device);
  const std::lock_guard lock(state().mutex);
  Device& device = *state().devices[static_cast<std::size_t>(range.device)];
  device.used.erase(base - number_of(device.base));
  state().ranges.erase(base);
  ASAN_POISON_MEMORY_REGION(pointer_of(address), range.size_bytes);
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuMemHostAlloc(void** data, std::size_t size_bytes, unsigned) {
  STAND_IN_ENTER(cuMemHostAlloc)
  if (current_device() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *data = std::aligned_alloc(4096, (size_bytes + 4095) / 4096 * 4096);
  if (*data == nullptr) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::lock_guard lock(state().mutex);
  state().ranges[number_of(*data)] = {size_bytes, CU_MEMORYTYPE_HOST, false, current_context()->device};
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuMemFreeHost(void* data) {
  STAND_IN_ENTER(cuMemFreeHost)
  const std::lock_guard lock(state().mutex);
  const auto found = state().ranges.find(number_of(data));
  if (found == state().ranges.end() || found->second.type != CU_MEMORYTYPE_HOST)
    return CUDA_ERROR_INVALID_VALUE;
  state().ranges.erase(found);
  std::free(data);
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuMemGetInfo(std::size_t* free_bytes, std::size_t* total_bytes) {
  STAND_IN_ENTER(cuMemGetInfo)
  const Device* device = current_device();
  if (device == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  const std::lock_guard lock(state().mutex);
  std::size_t used_bytes = 0;
  for (const auto& [offset, size_bytes] : device->used) used_bytes += size_bytes;
  *total_bytes = device->size_bytes;
  *free_bytes = device->size_bytes - used_bytes;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuMemGetAddressRange(CUdeviceptr* base, std::size_t* size_bytes, CUdeviceptr address) {
  STAND_IN_ENTER(cuMemGetAddressRange)
  std::uintptr_t start = 0;
  const Range range = range_of(pointer_of(address), &start);
  if (range.type != CU_MEMORYTYPE_DEVICE) return CUDA_ERROR_NOT_FOUND;
  if (base != nullptr) *base = start;
  if (size_bytes != nullptr) *size_bytes = range.size_bytes;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuPointerGetAttributes(unsigned count, CUpointer_attribute* attributes, void** values,
                                             CUdeviceptr address) {
  STAND_IN_ENTER(cuPointerGetAttributes)
  const Range range = range_of(pointer_of(address));
  for (unsigned i = 0; i < count; ++i) {
    switch (attributes[i]) {
      case CU_POINTER_ATTRIBUTE_MEMORY_TYPE:
        *static_cast<unsigned*>(values[i]) = range.type;
        break;
      case CU_POINTER_ATTRIBUTE_IS_MANAGED:
        *static_cast<unsigned char*>(values[i]) = range.is_managed ? 1 : 0;
        break;
      case CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL:
        *static_cast<int*>(values[i]) = range.type == 0 ? -2 : range.device;
        break;
      default:
        return CUDA_ERROR_NOT_SUPPORTED;
    }
  }
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuIpcGetMemHandle(CUipcMemHandle* handle, CUdeviceptr address) {
  STAND_IN_ENTER(cuIpcGetMemHandle)
  std::uintptr_t base = 0;
  const Range range = range_of(pointer_of(address), &base);
  if (range.type != CU_MEMORYTYPE_DEVICE || range.is_managed) return CUDA_ERROR_INVALID_VALUE;
  const Device& device = *state().devices[static_cast<std::size_t>(range.device)];
  const std::uintptr_t first = number_of(device.base);
  if (base < first || base - first >= device.size_bytes)
    return CUDA_ERROR_INVALID_VALUE;  // mapped from a peer
  const IpcHandle inside = {::getpid(),       device.file,       base - first,
                            range.size_bytes, device.size_bytes, range.device};
  std::memset(handle, 0, sizeof *handle);
  std::memcpy(handle, &inside, sizeof inside);
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuIpcOpenMemHandle(CUdeviceptr* address, CUipcMemHandle handle, unsigned) {
  STAND_IN_ENTER(cuIpcOpenMemHandle)
  if (current_device() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  IpcHandle inside;
  std::memcpy(&inside, &handle, sizeof inside);
  if (inside.process == ::getpid()) return CUDA_ERROR_INVALID_CONTEXT;  // only others open it
  const std::string path = "/proc/" + std::to_string(inside.process) + "/fd/" + std::to_string(inside.file);
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t skipped_bytes = inside.offset % 4096;  // a mapping starts at a page
  void* mapped = ::mmap(nullptr, skipped_bytes + inside.size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file,
                        static_cast<off_t>(inside.offset - skipped_bytes));
  ::close(file);
  if (mapped == MAP_FAILED) return CUDA_ERROR_OUT_OF_MEMORY;
  const std::uintptr_t start = number_of(mapped) + skipped_bytes;
  const std::lock_guard lock(state().mutex);
  state().ranges[start] = {inside.size_bytes, CU_MEMORYTYPE_DEVICE, false, current_context()->device};
  *address = start;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuIpcCloseMemHandle(CUdeviceptr address) {
  STAND_IN_ENTER(cuIpcCloseMemHandle)
  const std::lock_guard lock(state().mutex);
  const auto found = state().ranges.find(static_cast<std::uintptr_t>(address));
  if (found == state().ranges.end()) return CUDA_ERROR_INVALID_VALUE;
  const std::size_t skipped_bytes = found->first % 4096;
  ::munmap(pointer_of(address - skipped_bytes), skipped_bytes + found->second.size_bytes);
  state().ranges.erase(found);
  return CUDA_SUCCESS;
}
