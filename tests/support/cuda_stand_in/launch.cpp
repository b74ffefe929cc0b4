// The stand-in's modules and launches: a kernel is looked up by name among those compiled for the host.
#include <cstring>

#include "tests/support/cuda_stand_in/host_kernels.hpp"
#include "tests/support/cuda_stand_in/state.hpp"

struct CUmod_st {
  int device;
};
struct CUfunc_st {
  cuda_stand_in::HostKernel kernel;
};

using namespace cuda_stand_in;

STAND_IN_API CUresult cuModuleLoadData(CUmodule* module, const void* image) {
  STAND_IN_ENTER(cuModuleLoadData)
  if (current_device() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  constexpr unsigned kFatbinMagic = 0xBA55ED50;
  unsigned magic = 0;
  std::memcpy(&magic, image, sizeof magic);
  if (magic != kFatbinMagic) return CUDA_ERROR_INVALID_IMAGE;
  *module = new CUmod_st{current_context()->device};
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuModuleUnload(CUmodule module) {
  STAND_IN_ENTER(cuModuleUnload)
  delete module;
  return CUDA_SUCCESS;
}

// Functions live as long as the process: who unloads a module rarely asks for them again.
STAND_IN_API CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char* name) {
  STAND_IN_ENTER(cuModuleGetFunction)
  static std::mutex mutex;
  static auto& functions = *new std::map<std::string, CUfunc_st>;
  const HostKernel* kernel = find_host_kernel(name);
  if (kernel == nullptr) return CUDA_ERROR_NOT_FOUND;
  const std::lock_guard lock(mutex);
  *function = &functions.try_emplace(name, CUfunc_st{*kernel}).first->second;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
  STAND_IN_ENTER(cuFuncGetAttribute)
  *value = 0;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, CUfunction, int, std::size_t) {
  STAND_IN_ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor)
  *blocks = 2;
  return CUDA_SUCCESS;
}

STAND_IN_API CUresult cuLaunchKernel(CUfunction function, unsigned blocks, unsigned blocks_y,
                                     unsigned blocks_z, unsigned threads, unsigned threads_y,
                                     unsigned threads_z, unsigned, CUstream stream, void** parameters,
                                     void**) {
  STAND_IN_ENTER(cuLaunchKernel)
  if (blocks == 0 || threads == 0 || threads > 1024 || blocks_y * blocks_z * threads_y * threads_z != 1) {
    return CUDA_ERROR_INVALID_VALUE;
  }
  const std::shared_ptr<Queue> queue = queue_of(stream);
  if (queue == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
  if (const CUresult broken = error_of(queue->device()); broken != CUDA_SUCCESS) return broken;
  const HostKernel kernel = function->kernel;
  const auto* bytes = static_cast<const std::byte*>(parameters[0]);
  auto copy = std::make_shared<std::vector<std::byte>>(bytes, bytes + kernel.parameter_bytes);
  queue->put([kernel, copy, blocks] { kernel.run(copy->data(), blocks); });
  return CUDA_SUCCESS;
}
