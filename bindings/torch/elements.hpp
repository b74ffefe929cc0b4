// Tensors as tutti takes them: a pointer, a number of elements and a dtype; and torch's reductions. Staging
// of tensors whose elements do not lie row after row. Knows no group.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/distributed/c10d/Types.hpp>

#include <cstdint>
#include <vector>

#include "bindings/torch/work.hpp"

namespace tutti::torch_binding {

// What the elements of a tensor are to tutti: a complex number is two.
struct Elements {
  Dtype dtype;
  std::uint64_t per_scalar;

  std::uint64_t count(const at::Tensor& tensor) const {
    return static_cast<std::uint64_t>(tensor.numel()) * per_scalar;
  }
};

// For moving: every dtype, bytes where tutti has none like it. Errors: c10::Error for a tensor that is not
// dense, or on another device than the CPU and CUDA's.
Elements elements_to_move(const char* operation, const at::Tensor& tensor);
// For reducing by `op`. Errors: as above, and TypeError for a dtype without arithmetic, or on which op means
// nothing.
Elements elements_to_reduce(const char* operation, const at::Tensor& tensor, const c10d::ReduceOp& op);
Reduction reduction_of(const char* operation, const c10d::ReduceOp& op, const Elements& elements);

// Where operations read and write. What is contiguous is used in place; else a copy is, kept in `submitted`,
// and a finisher brings results back. All in one thread, before the operation is submitted.
class Staging {
 public:
  explicit Staging(Submitted* submitted) : submitted_(submitted) {}

  const void* input(const at::Tensor& tensor);
  void* output(const at::Tensor& tensor);
  void* in_place(const at::Tensor& tensor);
  // Several tensors as if they were one, in order.
  const void* inputs(const std::vector<at::Tensor>& tensors);
  void* outputs(const std::vector<at::Tensor>& tensors);

 private:
  void* keep(const at::Tensor& tensor);

  Submitted* submitted_;
};

}  // namespace tutti::torch_binding
