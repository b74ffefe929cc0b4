// The memory of operations: tensors, or copies of them. Knows no group and no dtype of tutti.
#pragma once

#include <ATen/ATen.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/torch/execution.hpp"

namespace tutti::torch_binding {

// Contiguous tensors are used in place; others are copied, kept in `submitted`, and a finisher brings results
// back. The operations of a call run at the same time. So no two of them may write to the same memory, nor
// one to an input of another: such tensors are copied, too. The outcome is as if all inputs were read first
// and all results written afterwards, in the order of the lists. So all outputs of a call are requested
// before its first input, and all inputs before its first operation is submitted. One thread.
class Staging {
 public:
  explicit Staging(Submitted* submitted) : submitted_(submitted) {}

  void* output(const at::Tensor& tensor);
  void* in_place(const at::Tensor& tensor);
  // `place`: where the operation lets its input be part of its output, or contain it; 0: nowhere.
  const void* input(const at::Tensor& tensor, std::uintptr_t place = 0);
  // Several tensors as if they were one, in order. Null where none has elements.
  void* outputs(const std::vector<at::Tensor>& tensors);
  const void* inputs(const std::vector<at::Tensor>& tensors, std::uintptr_t place = 0);

 private:
  struct Range {
    std::uintptr_t first = 0, end = 0;
  };

  // False where a part of it is written already.
  bool claim(std::uintptr_t first, std::size_t bytes);
  std::vector<Range>::iterator first_ending_behind(std::uintptr_t address);
  bool is_written(std::uintptr_t first, std::size_t bytes);
  void* keep(const at::Tensor& tensor);
  void keep_all(const std::vector<at::Tensor>& tensors);

  Submitted* submitted_;
  std::vector<Range> written_;  // in place; in order, disjoint
};

// Several calls of one operation, each from one input to one output.
struct StagedPairs {
  std::vector<const void*> from;
  std::vector<void*> to;
};
// `place(i, to)`: where the call lets input i be part of its output at `to`, or contain it.
template <class Place>
StagedPairs stage_pairs(Staging& staging, const std::vector<at::Tensor>& inputs,
                        const std::vector<at::Tensor>& outputs, const Place& place) {
  StagedPairs staged;
  // Outputs first: an input that another output overlaps is then moved out of its way.
  for (const at::Tensor& output : outputs) staged.to.push_back(staging.output(output));
  for (std::size_t i = 0; i < inputs.size(); ++i)
    staged.from.push_back(staging.input(inputs[i], place(i, staged.to[i])));
  return staged;
}

}  // namespace tutti::torch_binding
