// The kernels of a device by kind of element, and the rules for a dtype and an op.
// Knows names and rules; kernels.cpp and peer_allreduce.cpp launch them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "backends/cuda/driver.hpp"
#include "backends/cuda/elements.hpp"
#include "runtime/base/ops.hpp"
#include "runtime/base/status.hpp"
#include "runtime/base/types.hpp"

namespace tutti::cuda {

inline constexpr std::size_t kKinds = 10;  // of TUTTI_DEVICE_ELEMENTS, which kernel_table.cpp checks

// One function for every kind of element.
using KernelRow = std::array<CUfunction, kKinds>;

struct DeviceKernels {
  CUmodule module = nullptr;
  KernelRow reduce{};
  KernelRow scale{};
  KernelRow one_shot{};
  KernelRow two_shot{};
  std::uint64_t most_blocks = 0;  // of reduce and scale: as many as run at a time
  std::uint32_t resident_blocks =
      0;  // of one_shot and two_shot, of any kind: so many are sure to run at a time
};

// The index of a dtype's kind in a row. Signed integers and bool are with the unsigned integers of their
// width.
std::size_t kind_of(Dtype dtype);
// Both for legal pairs. avg and premul_sum fold as sum does.
FoldRule fold_rule(Op op, Dtype dtype);
ScaleRule scale_rule(const ReduceOp& op, Dtype dtype, int group_size);

// The kernels of the current context's device, loaded by the first call and kept as long as the process.
Result<const DeviceKernels*> current_kernels(const Driver& table);

}  // namespace tutti::cuda
