// Tensors by TensorFlow's C interface. See tensors.hpp.
#include "bindings/tensorflow/tensors.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <string>

namespace tutti::tensorflow {
namespace {

std::size_t product(const std::vector<std::int64_t>& dimensions) {
  return std::accumulate(dimensions.begin(), dimensions.end(), std::size_t{1}, std::multiplies<>());
}

Failure exhausted(const Status& status) { return {TF_RESOURCE_EXHAUSTED, status.message()}; }

}  // namespace

std::size_t Tensor::input_count() const { return product(dimensions); }

Failure read_tensor(TF_OpKernelContext* context, Tensor& tensor) {
  Status status;
  TF_Tensor* input = nullptr;
  TF_GetInput(context, tensor.index, &input, status);
  if (!status.is_ok()) return {TF_INVALID_ARGUMENT, status.message()};
  tensor.tf_dtype = TF_TensorType(input);
  tensor.input = TF_TensorData(input);
  for (int i = 0; i < TF_NumDims(input); ++i) tensor.dimensions.push_back(TF_Dim(input, i));
  TF_DeleteTensor(input);
  const auto elements = elements_of(tensor.tf_dtype);
  if (!elements) {
    return {TF_INVALID_ARGUMENT,
            "tensors of dtype number " + std::to_string(tensor.tf_dtype) + " cannot be communicated"};
  }
  tensor.elements = *elements;
  return {};
}

Failure forward_or_allocate(TF_OpKernelContext* context, Tensor& tensor) {
  Status status;
  int forwarded = -1;
  TF_Tensor* output =
      TF_ForwardInputOrAllocateOutput(context, &tensor.index, 1, tensor.index, tensor.dimensions.data(),
                                      static_cast<int>(tensor.dimensions.size()), &forwarded, status);
  if (!status.is_ok()) return exhausted(status);
  tensor.output = TF_TensorData(output);
  tensor.output_count = tensor.input_count();
  TF_DeleteTensor(output);
  return {};
}

Failure allocate_rows(TF_OpKernelContext* context, Tensor& tensor, std::uint64_t rows) {
  std::vector<std::int64_t> dimensions = tensor.dimensions;
  dimensions[0] = static_cast<std::int64_t>(rows);
  tensor.output_count = product(dimensions);
  Status status;
  TF_Tensor* output = TF_AllocateOutput(context, tensor.index, tensor.tf_dtype, dimensions.data(),
                                        static_cast<int>(dimensions.size()),
                                        tensor.output_count * tensor.elements.bytes, status);
  if (!status.is_ok()) return exhausted(status);
  tensor.output = TF_TensorData(output);
  TF_DeleteTensor(output);
  return {};
}

Failure read_integers(TF_OpKernelContext* context, int index, std::vector<std::int32_t>& values) {
  Status status;
  TF_Tensor* input = nullptr;
  TF_GetInput(context, index, &input, status);
  if (!status.is_ok()) return {TF_INVALID_ARGUMENT, status.message()};
  const bool is_list = TF_NumDims(input) == 1;
  if (is_list) {
    const auto* numbers = static_cast<const std::int32_t*>(TF_TensorData(input));
    values.assign(numbers, numbers + TF_Dim(input, 0));
  }
  TF_DeleteTensor(input);
  if (!is_list) return {TF_INVALID_ARGUMENT, "expected a list of integers of 32 bits"};
  return {};
}

Failure put_integers(TF_OpKernelContext* context, int index, const std::vector<std::int64_t>& dimensions,
                     const std::vector<std::int32_t>& values) {
  Status status;
  TF_Tensor* output =
      TF_AllocateOutput(context, index, TF_INT32, dimensions.data(), static_cast<int>(dimensions.size()),
                        values.size() * sizeof(std::int32_t), status);
  if (!status.is_ok()) return exhausted(status);
  std::copy(values.begin(), values.end(), static_cast<std::int32_t*>(TF_TensorData(output)));
  TF_DeleteTensor(output);
  return {};
}

}  // namespace tutti::tensorflow
