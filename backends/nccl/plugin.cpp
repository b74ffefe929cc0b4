// NCCL as the registry sees it.
#include "backends/nccl/plugin.hpp"

#include "backends/nccl/library.hpp"
#include "backends/nccl/nccl_engine.hpp"

namespace tutti::nccl {

Result<std::string> describe_library() {
  const auto loaded = library();
  if (!loaded) return loaded.status();
  return "NCCL " + version_text((*loaded)->version);
}

Result<std::unique_ptr<cuda::DeviceEngine>> make_engine(GroupServices& services, int device) {
  return make_nccl_engine(services, device);
}

}  // namespace tutti::nccl
