// NCCL as the registry sees it. Includes no header of NCCL's.
#pragma once

#include <memory>
#include <string>

#include "backends/cuda/device_engine.hpp"

namespace tutti::nccl {

// "NCCL 2.27.3"; unsupported, with the reason. Loads the library.
Result<std::string> describe_library();
// See nccl_engine.hpp.
Result<std::unique_ptr<cuda::DeviceEngine>> make_engine(GroupServices& services, int device);

}  // namespace tutti::nccl
