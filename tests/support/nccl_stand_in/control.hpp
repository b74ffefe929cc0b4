// Controls of the stand-in for NCCL, for tests: errors, ranks that never come, and a
// version. Ranks are threads of one process.
// Knows nothing of tutti. Environment, read by each call of ncclGetVersion: NCCL_STAND_IN_VERSION (a
// NCCL_VERSION_CODE; default: the header's). A function that this version lacks fails.
#pragma once

#include <nccl.h>

#define NCCL_STAND_IN_API extern "C" __attribute__((visibility("default")))

// From now on ncclCommGetAsyncError of every communicator reports this, and ncclGetLastError the text;
// ncclSuccess ends it.
NCCL_STAND_IN_API void nccl_stand_in_break(ncclResult_t error, const char* text);
// While true, communicators that are being made stay "in progress", as where a rank is missing.
NCCL_STAND_IN_API void nccl_stand_in_hang_init(bool hangs);
// The next call of a function fails with `error` on whichever rank makes it first.
NCCL_STAND_IN_API void nccl_stand_in_fail(const char* function, ncclResult_t error);
// Calls of a function so far.
NCCL_STAND_IN_API unsigned long nccl_stand_in_calls(const char* function);
// Communicators that were made and neither destroyed nor aborted.
NCCL_STAND_IN_API long nccl_stand_in_alive();
// Buffers that are registered with them.
NCCL_STAND_IN_API long nccl_stand_in_registered();
