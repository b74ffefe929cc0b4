// Finds NCCL's functions in libnccl.so.2, and turns its errors into Status.
// Knows no communicator but as a handle that errors are asked of.
#include "backends/nccl/library.hpp"

#include <dlfcn.h>

#include <fmt/format.h>

#include "runtime/base/config.hpp"

namespace tutti::nccl {
namespace {

// The header may be newer than the types written out, never different.
#if NCCL_VERSION_CODE >= 21900
static_assert(std::is_same_v<RegisterFunction, decltype(&::ncclCommRegister)>);
static_assert(std::is_same_v<DeregisterFunction, decltype(&::ncclCommDeregister)>);
#endif
#if NCCL_VERSION_CODE >= 22800
static_assert(std::is_same_v<AllToAllFunction, decltype(&::ncclAlltoAll)>);
static_assert(std::is_same_v<RootedFunction, decltype(&::ncclGather)>);
static_assert(std::is_same_v<RootedFunction, decltype(&::ncclScatter)>);
#endif

template <class Function>
bool look_up(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  return function != nullptr;
}

// The first function that the library lacks, else null.
const char* fill(Library& table, void* library) {
#define TUTTI_NCCL_LOOK_UP(function) \
  if (!look_up(library, #function, table.function)) return #function;
  TUTTI_NCCL_FUNCTIONS(TUTTI_NCCL_LOOK_UP)
#undef TUTTI_NCCL_LOOK_UP
  return nullptr;
}

// The version decides, so that all ranks of one version use the same functions.
const char* fill_newer(Library& table, void* library) {
  if (table.version < kHasRegister) return nullptr;
  if (!look_up(library, "ncclCommRegister", table.register_memory)) return "ncclCommRegister";
  if (!look_up(library, "ncclCommDeregister", table.deregister_memory)) return "ncclCommDeregister";
  if (table.version < kHasBlocks) return nullptr;
  if (!look_up(library, "ncclAlltoAll", table.alltoall)) return "ncclAlltoAll";
  if (!look_up(library, "ncclGather", table.gather)) return "ncclGather";
  if (!look_up(library, "ncclScatter", table.scatter)) return "ncclScatter";
  return nullptr;
}

StatusCode code_of(ncclResult_t result) {
  switch (static_cast<int>(result)) {
    case ncclInvalidArgument:
    case ncclInvalidUsage:
      return StatusCode::invalid_argument;
    case ncclRemoteError:
      return StatusCode::peer_failed;
    case 8:  // ncclTimeout, which older headers lack
      return StatusCode::timeout;
    default:
      return StatusCode::internal;
  }
}

}  // namespace

std::string version_text(int code) {
  return fmt::format("{}.{}.{}", code / 10000, code / 100 % 100, code % 100);
}

Result<Library> load_library(const std::string& file) {
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return unsupported(
        fmt::format("NCCL cannot be loaded: {}; TUTTI_NCCL_LIBRARY or LD_LIBRARY_PATH says where it is",
                    reason == nullptr ? file.c_str() : reason));
  }
  Library table;
  // The version of an old library says more than the function that it lacks.
  if (!look_up(library, "ncclGetVersion", table.ncclGetVersion) ||
      table.ncclGetVersion(&table.version) != ncclSuccess) {
    return unsupported(fmt::format("{} is no NCCL: it has no ncclGetVersion that answers", file));
  }
  if (table.version < kOldest) {
    return unsupported(
        fmt::format("{} is NCCL {}; 2.18 or newer is needed", file, version_text(table.version)));
  }
  const char* missing = fill(table, library);
  if (missing == nullptr) missing = fill_newer(table, library);
  if (missing != nullptr) {
    return unsupported(fmt::format("{} says that it is NCCL {}, but has no function {}", file,
                                   version_text(table.version), missing));
  }
  return table;
}

Result<const Library*> library() {
  static const Result<Library> kLoaded = []() -> Result<Library> {
    const auto name = get_text(Environment::of_process(), "TUTTI_NCCL_LIBRARY");
    if (!name) return name.status();
    return load_library(name->value_or("libnccl.so.2"));
  }();
  if (!kLoaded) return kLoaded.status();
  return &*kLoaded;
}

Status to_status(const Library& library, ncclResult_t result, std::string_view what,
                 ncclComm_t communicator) {
  if (result == ncclSuccess || result == ncclInProgress) return {};
  std::string message = fmt::format("{} failed: {}", what, library.ncclGetErrorString(result));
  const char* last = library.ncclGetLastError(communicator);
  if (last != nullptr && *last != '\0') message += fmt::format(" ({})", last);
  return Status(code_of(result), std::move(message));
}

}  // namespace tutti::nccl
