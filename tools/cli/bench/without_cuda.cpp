// Stands in for cuda_memory.cpp in a build without CUDA. Knows only why there is none.
#include <fmt/format.h>

#include "tools/cli/bench/gpu_memory.hpp"
#include "tutti_config.hpp"

namespace tutti::tool {
namespace {

Status no_cuda() {
  return unsupported(
      fmt::format("--device cuda: this build has no CUDA ({}); configure one with `meson setup build "
                  "-Dcuda=enabled`, where CUDA's toolkit is installed or -Dtoolkit names its folder",
                  TUTTI_REASON_CUDA));
}

}  // namespace

Result<int> count_gpus() { return no_cuda(); }
Result<std::unique_ptr<GpuMemory>> open_gpu(const CommGroup& /*group*/, int /*sharers*/) { return no_cuda(); }

}  // namespace tutti::tool
