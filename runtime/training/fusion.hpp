// Turns tensors that are ready on all ranks into operations: their order, and which of them share one.
// A pure function, equal on all ranks. Knows no buffer and no group.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/group/tensor_settings.hpp"
#include "runtime/training/tensor_request.hpp"

namespace tutti {

// One operation: indices into the list that plan_fusion() was given.
struct FusedOperation {
  std::vector<std::uint32_t> tensors;
};

// In the order of execution. Only allreduces are fused: of equal dtype, op, memory, factors and dtype of messages.
std::vector<FusedOperation> plan_fusion(std::span<const TensorResponse* const> ready, TensorPriority priority,
                                        const FusionLimits& limits);

}  // namespace tutti
