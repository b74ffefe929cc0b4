// Controls of the stand-in for CUDA's driver, for tests: faults, and streams that hang.
// Knows nothing of tutti. Environment, read by cuInit: CUDA_STAND_IN_DEVICES (default 2),
// CUDA_STAND_IN_MEMORY (bytes of each device, default 256 MiB), CUDA_STAND_IN_FAIL (function=result:
// cuInit=100).
#pragma once

#include <cuda.h>

#define STAND_IN_API extern "C" __attribute__((visibility("default")))

// The next `calls` calls of a function, by its name without a version, fail with `result`; 0 calls: no more.
STAND_IN_API void cuda_stand_in_fail(const char* function, CUresult result, int calls);
// While true, the streams of a device carry nothing out.
STAND_IN_API void cuda_stand_in_hang(int device, bool hangs);
// As after a fault of a kernel: whatever asks the device from now on gets this; CUDA_SUCCESS ends it.
STAND_IN_API void cuda_stand_in_break(int device, CUresult error);
// Calls of a function so far, by its name without a version.
STAND_IN_API unsigned long cuda_stand_in_calls(const char* function);
