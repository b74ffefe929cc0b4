// CUDA's driver API as a table of functions, found at run time: nothing of tutti is linked with CUDA.
// Knows the names of the functions and how their library is found; not what they are used for.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/status.hpp"

namespace tutti::cuda {

// The functions of the table, by the names of cuda.h, which stand for versions of them (cuMemAlloc is
// cuMemAlloc_v2): symbol and type follow the header that was compiled with. All are in every driver
// since 11.4.
// clang-format off
#define TUTTI_CUDA_FUNCTIONS(X) \
  X(cuInit) X(cuDriverGetVersion) X(cuGetErrorName) X(cuGetErrorString) X(cuDeviceGet) X(cuDeviceGetCount) \
  X(cuDeviceGetName) X(cuDeviceGetUuid) X(cuDeviceGetAttribute) X(cuDeviceGetPCIBusId) X(cuDeviceTotalMem) \
  X(cuDeviceCanAccessPeer) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease) X(cuCtxPushCurrent) \
  X(cuCtxPopCurrent) X(cuCtxGetCurrent) X(cuCtxGetDevice) X(cuCtxEnablePeerAccess) X(cuMemAlloc) \
  X(cuMemFree) X(cuMemHostAlloc) X(cuMemFreeHost) X(cuMemGetInfo) X(cuMemGetAddressRange) \
  X(cuPointerGetAttributes) X(cuMemcpy) X(cuMemcpyAsync) X(cuMemsetD8Async) X(cuIpcGetMemHandle) \
  X(cuIpcOpenMemHandle) X(cuIpcCloseMemHandle) X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamQuery) \
  X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuStreamIsCapturing) X(cuLaunchHostFunc) \
  X(cuStreamWriteValue32) X(cuStreamWaitValue32) X(cuEventCreate) X(cuEventDestroy) X(cuEventRecord) \
  X(cuEventQuery) X(cuModuleLoadData) X(cuModuleUnload) X(cuModuleGetFunction) X(cuFuncGetAttribute) \
  X(cuLaunchKernel) X(cuOccupancyMaxActiveBlocksPerMultiprocessor)
// clang-format on

struct Driver {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declared name has none
#define TUTTI_CUDA_MEMBER(function) decltype(&::function) function = nullptr;
  TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_MEMBER)
#undef TUTTI_CUDA_MEMBER
  int version = 0;  // of CUDA that the driver supports: 12040 is 12.4; 0 before cuInit
};

// The driver of this process, loaded and initialised (cuInit) by the first call; unsupported, with the
// reason, where there is none. TUTTI_CUDA_LIBRARY names another file than libcuda.so.1. Never unloaded. Any
// thread.
Result<const Driver*> driver();

// The same table where the program has the library already and has called cuInit or not; null as long as it
// has not. Loads and initialises nothing. The first call and those of probe() look; others read one word.
const Driver* driver_in_use();
// Looks again whether the program has loaded the library by now. For points that are not hot: a group's
// start.
void probe();

// The table of a library by file name, without cuInit. For driver() and tests.
Result<Driver> load_driver(const std::string& file);
// cuInit through a table; the reason it failed, with what to do about it.
Status initialise(Driver& table);

// The driver's addresses are numbers.
inline CUdeviceptr address_of(const void* pointer) {
  return static_cast<CUdeviceptr>(reinterpret_cast<std::uintptr_t>(pointer));
}
inline void* pointer_to(CUdeviceptr address) {
  return reinterpret_cast<void*>(static_cast<std::uintptr_t>(address));
}

// The devices that this process sees, and the name of one.
Result<int> count_devices(const Driver& table);
Result<std::string> name_of_device(const Driver& table, int device);

// ok, or the call and the driver's error: "cuMemAlloc(1024) failed: CUDA_ERROR_OUT_OF_MEMORY (out of
// memory)". Running out of memory is resource_exhausted, an unusable argument invalid_argument.
Status to_status(const Driver& table, CUresult result, std::string_view what);

}  // namespace tutti::cuda

// Returns the Status of a call through the table from the enclosing function if it failed.
#define TUTTI_RETURN_IF_CUDA_ERROR(table, expression, what)                         \
  do {                                                                              \
    if (const CUresult tutti_result = (expression); tutti_result != CUDA_SUCCESS) { \
      return ::tutti::cuda::to_status((table), tutti_result, (what));               \
    }                                                                               \
  } while (false)
