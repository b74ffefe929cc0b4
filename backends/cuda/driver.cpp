// Finds the driver API's functions in libcuda.so.1, and turns its errors into Status.
// Knows no device, stream or memory.
#include "backends/cuda/driver.hpp"

#include <dlfcn.h>

#include <array>
#include <atomic>
#include <mutex>

#include "runtime/base/config.hpp"

namespace tutti::cuda {
namespace {

// Two steps, so that the versioned name becomes text.
#define TUTTI_CUDA_TEXT(name) #name
#define TUTTI_CUDA_SYMBOL(name) TUTTI_CUDA_TEXT(name)

std::string library_name() {
  const auto name = get_text(Environment::of_process(), "TUTTI_CUDA_LIBRARY");
  return name && *name ? **name : "libcuda.so.1";
}

// Fills the table; the name of the first function that the library lacks, else null.
const char* fill(Driver& table, void* library) {
#define TUTTI_CUDA_LOOK_UP(function)                                                             \
  table.function =                                                                               \
      reinterpret_cast<decltype(table.function)>(::dlsym(library, TUTTI_CUDA_SYMBOL(function))); \
  if (table.function == nullptr) return TUTTI_CUDA_SYMBOL(function);
  TUTTI_CUDA_FUNCTIONS(TUTTI_CUDA_LOOK_UP)
#undef TUTTI_CUDA_LOOK_UP
  return nullptr;
}

Result<Driver> table_of(void* library, const std::string& file) {
  Driver table;
  if (const char* missing = fill(table, library); missing != nullptr) {
    return unsupported(file + " has no function " + missing + "; the GPU's driver is older than CUDA 11.4");
  }
  return table;
}

std::atomic<const Driver*> in_use{nullptr};
std::atomic<bool> has_looked{false};

}  // namespace

Result<Driver> load_driver(const std::string& file) {
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* reason = ::dlerror();
    return unsupported(
        "the CUDA driver's library cannot be loaded: " + std::string(reason == nullptr ? file : reason) +
        "; has this machine a GPU with its driver (nvidia-smi)?");
  }
  return table_of(library, file);
}

Status initialise(Driver& table) {
  if (const CUresult result = table.cuInit(0); result != CUDA_SUCCESS) {
    const Status failure = to_status(table, result, "cuInit");
    return unsupported(failure.message() + "; is a GPU visible here (nvidia-smi, CUDA_VISIBLE_DEVICES)?");
  }
  return to_status(table, table.cuDriverGetVersion(&table.version), "cuDriverGetVersion");
}

Result<const Driver*> driver() {
  static Result<Driver> loaded = []() -> Result<Driver> {
    Result<Driver> table = load_driver(library_name());
    if (table) {
      if (const Status status = initialise(*table); !status) return status;
    }
    return table;
  }();
  if (!loaded) return loaded.status();
  if (in_use.load(std::memory_order_relaxed) == nullptr) in_use.store(&*loaded, std::memory_order_release);
  return &*loaded;
}

void probe() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  has_looked.store(true, std::memory_order_relaxed);
  if (in_use.load(std::memory_order_relaxed) != nullptr) return;
  const std::string file = library_name();
  void* library = ::dlopen(file.c_str(), RTLD_NOW | RTLD_NOLOAD | RTLD_LOCAL);
  if (library == nullptr) return;
  // A library too old for the table cannot have given out memory that tutti could use.
  static Driver table;
  if (Result<Driver> found = table_of(library, file); found) {
    table = *found;
    in_use.store(&table, std::memory_order_release);
  }
}

const Driver* driver_in_use() {
  const Driver* table = in_use.load(std::memory_order_acquire);
  if (table == nullptr && !has_looked.load(std::memory_order_relaxed)) {
    probe();
    table = in_use.load(std::memory_order_acquire);
  }
  return table;
}

Result<int> count_devices(const Driver& table) {
  int count = 0;
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuDeviceGetCount(&count), "cuDeviceGetCount");
  return count;
}

Result<std::string> name_of_device(const Driver& table, int device) {
  CUdevice handle = 0;
  std::array<char, 128> name{};
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuDeviceGet(&handle, device), "cuDeviceGet");
  TUTTI_RETURN_IF_CUDA_ERROR(table, table.cuDeviceGetName(name.data(), name.size(), handle),
                             "cuDeviceGetName");
  return std::string(name.data());
}

Status to_status(const Driver& table, CUresult result, std::string_view what) {
  if (result == CUDA_SUCCESS) return {};
  const char* name = nullptr;
  const char* text = nullptr;
  if (table.cuGetErrorName(result, &name) != CUDA_SUCCESS) name = nullptr;
  if (table.cuGetErrorString(result, &text) != CUDA_SUCCESS) text = nullptr;
  std::string message(what);
  message += " failed: ";
  message += name == nullptr ? "CUDA error " + std::to_string(static_cast<int>(result)) : name;
  if (text != nullptr) message += " (" + std::string(text) + ")";
  switch (result) {
    case CUDA_ERROR_OUT_OF_MEMORY:
      return Status(StatusCode::resource_exhausted, std::move(message));
    case CUDA_ERROR_INVALID_VALUE:
    case CUDA_ERROR_INVALID_DEVICE:
    case CUDA_ERROR_INVALID_HANDLE:
    case CUDA_ERROR_INVALID_CONTEXT:
      return invalid_argument(std::move(message));
    case CUDA_ERROR_NOT_SUPPORTED:
    case CUDA_ERROR_NO_BINARY_FOR_GPU:
    case CUDA_ERROR_NO_DEVICE:
      return unsupported(std::move(message));
    default:
      return internal_error(std::move(message));
  }
}

}  // namespace tutti::cuda
