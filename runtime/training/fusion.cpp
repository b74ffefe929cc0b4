// Order by priority, then first fit into operations that are still open. See fusion.hpp.
#include "runtime/training/fusion.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>

namespace tutti {

std::vector<FusedOperation> plan_fusion(std::span<const TensorResponse* const> ready, TensorPriority priority,
                                        const FusionLimits& limits) {
  std::vector<std::uint32_t> order(ready.size());
  std::iota(order.begin(), order.end(), 0U);
  if (priority == TensorPriority::lifo) std::reverse(order.begin(), order.end());
  if (priority == TensorPriority::direct) {
    std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
      return ready[a]->signature.priority > ready[b]->signature.priority;
    });
  }
  struct Open {
    std::size_t operation;
    std::uint64_t bytes;
  };
  std::map<std::tuple<Dtype, Op, double, double, std::optional<Dtype>, bool>, Open> open;
  std::vector<FusedOperation> operations;
  for (const std::uint32_t index : order) {
    const TensorSignature& s = ready[index]->signature;
    const std::uint64_t bytes = element_count(s) * size_of(s.dtype);
    const bool is_fused = s.collective == Collective::allreduce && !s.is_device &&
                          bytes <= limits.packed_bytes && bytes <= limits.fused_bytes;
    if (!is_fused) {
      operations.push_back({{index}});
      continue;
    }
    const auto key = std::make_tuple(s.dtype, s.op, s.prescale, s.postscale, s.wire_dtype, s.has_feedback);
    const auto found = open.find(key);
    if (found != open.end() && found->second.bytes + bytes <= limits.fused_bytes) {
      operations[found->second.operation].tensors.push_back(index);
      found->second.bytes += bytes;
    } else {
      open.insert_or_assign(key, Open{operations.size(), bytes});
      operations.push_back({{index}});
    }
  }
  return operations;
}

}  // namespace tutti
