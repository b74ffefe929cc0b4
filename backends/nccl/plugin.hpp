// What the registry of backends sees of NCCL. Knows no header of NCCL's.
#pragma once

#include <memory>
#include <string>

#include "backends/backend.hpp"

namespace tutti::nccl {

// "NCCL 2.27.3"; unsupported, with the reason. Loads the library.
Result<std::string> describe_library();
// See nccl_backend.hpp.
Result<std::unique_ptr<Backend>> make_backend(GroupServices& services, int device);
Result<std::unique_ptr<Backend>> split_backend(Backend& parent, GroupServices& services, int color, int key);

}  // namespace tutti::nccl
