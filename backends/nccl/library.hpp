// NCCL as a table of functions, found at run time: nothing of tutti is linked with NCCL.
// Knows the names of the functions, since when NCCL has them and what its error codes mean here; not what
// they are used for.
#pragma once

#include <nccl.h>

#include <string>
#include <string_view>

#include "runtime/base/status.hpp"

namespace tutti::nccl {

// NCCL_VERSION_CODE of major.minor, as every version from 2.9 on counts.
constexpr int version_code(int major, int minor) { return major * 10000 + minor * 100; }

inline constexpr int kOldest = version_code(2, 18);  // communicators that do not block, and can be split
inline constexpr int kHasRegister = version_code(2, 19);
inline constexpr int kHasFloat8 = version_code(2, 24);
inline constexpr int kHasBlocks = version_code(2, 28);  // alltoall, gather, scatter of its own

// Functions that every supported library has are typed by nccl.h; later ones are declared here, whatever the
// header's version.
#define TUTTI_NCCL_FUNCTIONS(X) \
  X(ncclGetVersion)             \
  X(ncclGetErrorString)         \
  X(ncclGetLastError)           \
  X(ncclGetUniqueId)            \
  X(ncclCommInitRankConfig)     \
  X(ncclCommGetAsyncError)      \
  X(ncclCommSplit)              \
  X(ncclCommFinalize)           \
  X(ncclCommDestroy)            \
  X(ncclCommAbort)              \
  X(ncclCommCuDevice)           \
  X(ncclCommUserRank)           \
  X(ncclCommCount)              \
  X(ncclRedOpCreatePreMulSum)   \
  X(ncclRedOpDestroy)           \
  X(ncclGroupStart)             \
  X(ncclGroupEnd)               \
  X(ncclAllReduce)              \
  X(ncclBroadcast)              \
  X(ncclReduce)                 \
  X(ncclAllGather)              \
  X(ncclReduceScatter)          \
  X(ncclSend)                   \
  X(ncclRecv)

using RegisterFunction = ncclResult_t (*)(const ncclComm_t, void* memory, std::size_t bytes, void** handle);
using DeregisterFunction = ncclResult_t (*)(const ncclComm_t, void* handle);
using AllToAllFunction = ncclResult_t (*)(const void*, void*, std::size_t count, ncclDataType_t, ncclComm_t,
                                          cudaStream_t);
using RootedFunction = ncclResult_t (*)(const void*, void*, std::size_t count, ncclDataType_t, int root,
                                        ncclComm_t, cudaStream_t);

struct Library {
// NOLINTNEXTLINE(bugprone-macro-parentheses): a declared name has none
#define TUTTI_NCCL_MEMBER(function) decltype(&::function) function = nullptr;
  TUTTI_NCCL_FUNCTIONS(TUTTI_NCCL_MEMBER)
#undef TUTTI_NCCL_MEMBER
  // Null before their versions.
  RegisterFunction register_memory = nullptr;
  DeregisterFunction deregister_memory = nullptr;
  AllToAllFunction alltoall = nullptr;
  RootedFunction gather = nullptr;
  RootedFunction scatter = nullptr;
  int version = 0;  // as NCCL_VERSION_CODE: 22703 is 2.27.3
};

// The library of this process, loaded by the first call; unsupported, with the reason, where there is none or
// it is too old. TUTTI_NCCL_LIBRARY names another file than libnccl.so.2. Never unloaded. Any thread.
Result<const Library*> library();
// The table of a library by file name. For library() and tests.
Result<Library> load_library(const std::string& file);

// "2.27.3"
std::string version_text(int code);

// ok, also for a call that is in progress; or the call, NCCL's text of the code, and its last error
// where it has one: "ncclAllReduce failed: remote process exited or there was a network error (...)".
Status to_status(const Library& library, ncclResult_t result, std::string_view what, ncclComm_t communicator);

}  // namespace tutti::nccl
