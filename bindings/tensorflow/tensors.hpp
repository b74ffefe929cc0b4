// Inputs and outputs of one execution of a kernel: reads and allocates them. Knows no queue.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "bindings/tensorflow/elements.hpp"
#include "bindings/tensorflow/status.hpp"

namespace tutti::tensorflow {

// A tensor on its way. The context keeps the memory of inputs until the operation is done, so no TF_Tensor is kept here: TensorFlow then
// gives an input's memory for the output where nobody else uses it.
struct Tensor {
  int index = 0;  // of the input and of the output
  TF_DataType tf_dtype = TF_FLOAT;
  Elements elements;
  std::vector<std::int64_t> dimensions;  // of the input
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t output_count = 0;  // elements

  std::size_t input_count() const;
};

Failure read_tensor(TF_OpKernelContext* context, Tensor& tensor);
// The output has the shape of the input, and its memory where that is free.
Failure forward_or_allocate(TF_OpKernelContext* context, Tensor& tensor);
// The output has `rows` rows.
Failure allocate_rows(TF_OpKernelContext* context, Tensor& tensor, std::uint64_t rows);

Failure read_integers(TF_OpKernelContext* context, int index, std::vector<std::int32_t>& values);
// A scalar: no dimensions and one value.
Failure put_integers(TF_OpKernelContext* context, int index, const std::vector<std::int64_t>& dimensions,
                     const std::vector<std::int32_t>& values);

}  // namespace tutti::tensorflow
