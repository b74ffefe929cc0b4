// The stand-in's devices, contexts and errors, and the faults that tests ask for.
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

#include "tests/support/cuda_stand_in/state.hpp"

namespace cuda_stand_in {
namespace {

thread_local std::vector<CUcontext> contexts;

std::size_t number_of(const char* variable, std::size_t otherwise) {
  const char* text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

void read_failure() {
  const char* text = std::getenv("CUDA_STAND_IN_FAIL");
  const char* equals = text == nullptr ? nullptr : std::strchr(text, '=');
  if (equals == nullptr) return;
  const auto result = static_cast<CUresult>(std::atoi(equals + 1));
  state().failures[std::string(text, equals)] = {result, 1 << 30};
}

bool make_device(Device& device, int ordinal, std::size_t size_bytes) {
  device.context.device = ordinal;
  device.file = ::memfd_create("cuda_stand_in", MFD_CLOEXEC);
  if (device.file < 0 || ::ftruncate(device.file, static_cast<off_t>(size_bytes)) != 0) return false;
  void* base = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, device.file, 0);
  if (base == MAP_FAILED) return false;
  device.base = static_cast<std::byte*>(base);
  device.size_bytes = size_bytes;
  return true;
}

bool is_ordinal(int device) {
  return device >= 0 && static_cast<std::size_t>(device) < state().devices.size();
}

}  // namespace

State& state() {
  static State& the_state = *new State;
  return the_state;
}

CUresult enter(const char* function) {
  State& all = state();
  const std::lock_guard lock(all.mutex);
  if (!all.is_initialised && all.calls.empty()) read_failure();
  ++all.calls[function];
  if (const auto found = all.failures.find(function);
      found != all.failures.end() && found->second.second > 0) {
    --found->second.second;
    return found->second.first;
  }
  return all.is_initialised || std::strcmp(function, "cuInit") == 0 ? CUDA_SUCCESS
                                                                    : CUDA_ERROR_NOT_INITIALIZED;
}

CUcontext current_context() { return contexts.empty() ? nullptr : contexts.back(); }

Device* current_device() {
  const CUcontext context = current_context();
  return context == nullptr ? nullptr : state().devices[static_cast<std::size_t>(context->device)].get();
}

CUresult error_of(int device) {
  const std::lock_guard lock(state().mutex);
  return state().devices[static_cast<std::size_t>(device)]->error;
}

}  // namespace cuda_stand_in

using namespace cuda_stand_in;

STAND_IN_API void cuda_stand_in_fail(const char* function, CUresult result, int calls) {
  const std::lock_guard lock(state().mutex);
  state().failures[function] = {result, calls};
}

STAND_IN_API void cuda_stand_in_hang(int device, bool hangs) {
  const std::lock_guard lock(state().mutex);
  state().devices.at(static_cast<std::size_t>(device))->hangs = hangs;
  state().changed.notify_all();
}

STAND_IN_API void cuda_stand_in_break(int device, CUresult error) {
  const std::lock_guard lock(state().mutex);
  state().devices.at(static_cast<std::size_t>(device))->error = error;
}

STAND_IN_API unsigned long cuda_stand_in_calls(const char* function) {
  const std::lock_guard lock(state().mutex);
  const auto found = state().calls.find(std::string_view(function));
  return found == state().calls.end() ? 0 : found->second;
}

STAND_IN_API CUresult cuInit(unsigned) {
  STAND_IN_ENTER(cuInit)
  const std::lock_guard lock(state().mutex);
  if (state().is_initialised) return CUDA_SUCCESS;
  const std::size_t count = number_of("CUDA_STAND_IN_DEVICES", 2);
  if (count == 0) return CUDA_ERROR_NO_DEVICE;
  const std::size_t size_bytes = number_of("CUDA_STAND_IN_MEMORY", std::size_t{256} << 20U);
  for (std::size_t i = 0; i < count; ++i) {
    state().devices.push_back(std::make_unique<Device>());
    if (!make_device(*state().devices.back(), static_cast<int>(i), size_bytes))
      return CUDA_ERROR_OUT_OF_MEMORY;
  }
  state().is_initialised = true;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuDriverGetVersion(int* version) {
  *version = CUDA_VERSION;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuGetErrorName(CUresult error, const char** text) {
  *text = nullptr;
  switch (error) {
#define STAND_IN_NAME(name) \
  case name:                \
    *text = #name;          \
    return CUDA_SUCCESS;
    STAND_IN_NAME(CUDA_SUCCESS)
    STAND_IN_NAME(CUDA_ERROR_INVALID_VALUE)
    STAND_IN_NAME(CUDA_ERROR_OUT_OF_MEMORY)
    STAND_IN_NAME(CUDA_ERROR_NOT_INITIALIZED)
    STAND_IN_NAME(CUDA_ERROR_NO_DEVICE)
    STAND_IN_NAME(CUDA_ERROR_INVALID_DEVICE)
    STAND_IN_NAME(CUDA_ERROR_INVALID_IMAGE)
    STAND_IN_NAME(CUDA_ERROR_INVALID_CONTEXT)
    STAND_IN_NAME(CUDA_ERROR_INVALID_HANDLE)
    STAND_IN_NAME(CUDA_ERROR_NOT_FOUND)
    STAND_IN_NAME(CUDA_ERROR_NOT_READY)
    STAND_IN_NAME(CUDA_ERROR_ILLEGAL_ADDRESS)
    STAND_IN_NAME(CUDA_ERROR_NOT_SUPPORTED)
    STAND_IN_NAME(CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)
    default:
      return CUDA_ERROR_INVALID_VALUE;
  }
}

STAND_IN_API CUresult cuGetErrorString(CUresult error, const char** text) {
  *text = error == CUDA_ERROR_OUT_OF_MEMORY ? "out of memory" : "as the stand-in was told";
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuDeviceGetCount(int* count) {
  STAND_IN_ENTER(cuDeviceGetCount)
  *count = static_cast<int>(state().devices.size());
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuDeviceGet(CUdevice* device, int ordinal) {
  STAND_IN_ENTER(cuDeviceGet)
  if (!is_ordinal(ordinal)) return CUDA_ERROR_INVALID_DEVICE;
  *device = ordinal;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuDeviceGetName(char* name, int size, CUdevice device) {
  STAND_IN_ENTER(cuDeviceGetName)
  if (!is_ordinal(device) || size < 1) return CUDA_ERROR_INVALID_DEVICE;
  std::strncpy(name, "stand-in GPU", static_cast<std::size_t>(size));
  name[size - 1] = 0;
  return CUDA_SUCCESS;
}

// The process and the ordinal: devices of two processes are two, as with one GPU each.
STAND_IN_API CUresult cuDeviceGetUuid(CUuuid* uuid, CUdevice device) {
  STAND_IN_ENTER(cuDeviceGetUuid)
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  const pid_t process = ::getpid();
  std::memset(uuid->bytes, 0, sizeof uuid->bytes);
  std::memcpy(uuid->bytes, &process, sizeof process);
  std::memcpy(uuid->bytes + 8, &device, sizeof device);
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuDeviceGetPCIBusId(char* text, int size, CUdevice device) {
  STAND_IN_ENTER(cuDeviceGetPCIBusId)
  if (!is_ordinal(device) || size < 13) return CUDA_ERROR_INVALID_DEVICE;
  std::memcpy(text, "0000:00:00.0", 13);
  text[6] = static_cast<char>('0' + device % 10);
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute attribute, CUdevice device) {
  STAND_IN_ENTER(cuDeviceGetAttribute)
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      *value = 2;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      *value = 9;
      return CUDA_SUCCESS;
    case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR:
      *value = 2048;
      return CUDA_SUCCESS;
    default:
      *value = 0;
      return CUDA_SUCCESS;
  }
}

STAND_IN_API CUresult cuDeviceTotalMem(std::size_t* size_bytes, CUdevice device) {
  STAND_IN_ENTER(cuDeviceTotalMem)
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  *size_bytes = state().devices[static_cast<std::size_t>(device)]->size_bytes;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuDeviceCanAccessPeer(int* can, CUdevice device, CUdevice peer) {
  STAND_IN_ENTER(cuDeviceCanAccessPeer)
  if (!is_ordinal(device) || !is_ordinal(peer)) return CUDA_ERROR_INVALID_DEVICE;
  *can = device != peer ? 1 : 0;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
  STAND_IN_ENTER(cuDevicePrimaryCtxRetain)
  if (!is_ordinal(device)) return CUDA_ERROR_INVALID_DEVICE;
  *context = &state().devices[static_cast<std::size_t>(device)]->context;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuDevicePrimaryCtxRelease(CUdevice device) {
  STAND_IN_ENTER(cuDevicePrimaryCtxRelease)
  return is_ordinal(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

STAND_IN_API CUresult cuCtxPushCurrent(CUcontext context) {
  STAND_IN_ENTER(cuCtxPushCurrent)
  contexts.push_back(context);
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuCtxPopCurrent(CUcontext* context) {
  STAND_IN_ENTER(cuCtxPopCurrent)
  if (contexts.empty()) return CUDA_ERROR_INVALID_CONTEXT;
  if (context != nullptr) *context = contexts.back();
  contexts.pop_back();
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuCtxGetCurrent(CUcontext* context) {
  STAND_IN_ENTER(cuCtxGetCurrent)
  *context = current_context();
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuCtxGetDevice(CUdevice* device) {
  STAND_IN_ENTER(cuCtxGetDevice)
  if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  *device = current_context()->device;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuCtxEnablePeerAccess(CUcontext, unsigned) {
  STAND_IN_ENTER(cuCtxEnablePeerAccess)
  return CUDA_SUCCESS;
}
