// Tensors in tutti's form, a number of elements and a dtype; and torch's reductions. Knows no group.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>

#include "tutti/tutti.hpp"

namespace tutti::torch_binding {

// The elements of a tensor in tutti's form: a complex number is two.
struct Elements {
  Dtype dtype;
  std::uint64_t per_scalar;

  std::uint64_t count(const at::Tensor& tensor) const {
    return static_cast<std::uint64_t>(tensor.numel()) * per_scalar;
  }
};

// For moving: every dtype, as bytes where tutti has no equal one. Errors: c10::Error for a tensor that is not
// dense, or on another device than the CPU and CUDA's.
Elements elements_to_move(const char* operation, const at::Tensor& tensor);
// For reducing by `op`. Errors: as above, and TypeError for a dtype without arithmetic or without this op.
Elements elements_to_reduce(const char* operation, const at::Tensor& tensor, const c10d::ReduceOp& op);
Reduction reduction_of(const char* operation, const c10d::ReduceOp& op, const Elements& elements);

}  // namespace tutti::torch_binding
