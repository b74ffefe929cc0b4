// NCCL as the registry sees it.
#include "backends/nccl/plugin.hpp"

#include "backends/nccl/nccl_backend.hpp"

namespace tutti::nccl {

Result<std::string> describe_library() {
  const auto loaded = library();
  if (!loaded) return loaded.status();
  return "NCCL " + version_text((*loaded)->version);
}

Result<std::unique_ptr<Backend>> make_backend(GroupServices& services, int device) {
  auto made = make_nccl_backend(services, device);
  if (!made) return made.status();
  return std::unique_ptr<Backend>(*std::move(made));
}

Result<std::unique_ptr<Backend>> split_backend(Backend& parent, GroupServices& services, int color, int key) {
  auto made = static_cast<NcclBackend&>(parent).split(services, color, key);
  if (!made) return made.status();
  return std::unique_ptr<Backend>(*std::move(made));
}

}  // namespace tutti::nccl
