// Communication of gradients and increments. See parameter_set.hpp.
#include "bindings/mlsl/parameter_set.hpp"

#include <fmt/format.h>

#include "bindings/mlsl/data_types.hpp"
#include "bindings/mlsl/environment.hpp"
#include "bindings/mlsl/failure.hpp"
#include "bindings/mlsl/operation.hpp"
#include "bindings/mlsl/quantizer.hpp"
#include "tutti/tensors.hpp"

namespace tutti::mlsl {

ParameterSetImpl::ParameterSetImpl(OperationImpl& owner, std::size_t index, const Kernels& described)
    : operation(owner),
      kernels(described),
      gradient_request(owner.name + ": StartGradientComm"),
      increment_request(owner.name + ": StartIncrementComm") {
  const Place& place = operation.distribution->place();
  name_ = fmt::format("{}.{}.{}", operation.session.number, operation.index, index);
  priority = -static_cast<int>(operation.first_set + index);
  global = part_of(kernels.count, place.model_count, place.model_index);
  local_count = owned_count = global.count;
  if (kernels.compression == MLSL::CT_QUANTIZATION &&
      (kernels.type != MLSL::DT_FLOAT || kernels.has_distributed_update)) {
    warn(operation.name +
         ": gradients with distributed update, or of another type than DT_FLOAT, are not compressed");
    kernels.compression = MLSL::CT_NONE;
  }
  if (!kernels.has_distributed_update) return;
  owned_count = (global.count + place.data_count - 1) / place.data_count;
  local_count = owned_count * place.data_count;
  owned_first = owned_count * place.data_index;
}

bool ParameterSetImpl::communicates() const {
  // Of fewer kernels than model partitions, the last data groups have none.
  return operation.distribution->place().data_count > 1 && local_count > 0;
}

bool ParameterSetImpl::may_be_overtaken() const {
  return operation.first_set > 0 && gradient_bytes() >= environment().settings().priority_bytes;
}

std::size_t ParameterSetImpl::gradient_bytes() const {
  return element_count(local_count) * bytes_of(kernels.type);
}

void ParameterSetImpl::start_gradients(void* buffer) {
  if (!communicates()) return;
  if (buffer == nullptr) fail(gradient_request.name() + ": the buffer is null");
  gradient_request.begin();
  const Dtype dtype = dtype_of(kernels.type);
  const CommGroup& group = operation.distribution->group(MLSL::GT_DATA);
  gradient_result = buffer;
  if (kernels.has_distributed_update) {
    if (owned_ == nullptr)
      owned_ = environment().allocate_owned(element_count(owned_count) * bytes_of(kernels.type));
    gradient_result = owned_.get();
  }
  guarded(gradient_request.name().c_str(), [&] {
    const Settings& settings = environment().settings();
    if (kernels.compression == MLSL::CT_QUANTIZATION) {
      start_compressed(buffer);
    } else if (settings.has_priority && may_be_overtaken()) {
      start_prioritized(buffer);
    } else if (kernels.has_distributed_update) {
      gradient_request.add(group.ireduce_scatter(buffer, gradient_result, element_count(owned_count), dtype));
    } else {
      add_allreduce(gradient_request, group, buffer, buffer, element_count(local_count), dtype, Op::sum);
    }
  });
}

void ParameterSetImpl::start_prioritized(void* buffer) {
  const std::uint64_t shape[] = {local_count, kernels.size};
  TensorCall call;
  call.collective = kernels.has_distributed_update ? Collective::reduce_scatter : Collective::allreduce;
  call.input = buffer;
  call.output = gradient_result;
  call.dtype = dtype_of(kernels.type);
  call.shape = shape;
  call.priority = priority;
  call.memory = Memory::host;
  gradient_request.add(operation.distribution->tensors().submit(name_, call));
}

void ParameterSetImpl::start_compressed(void* buffer) {
  const std::size_t count = element_count(local_count);
  if (quantizer_ == nullptr) {
    quantizer_ = environment().quantizer();
    if (quantizer_ == nullptr)
      fail(operation.name + ": call SetQuantizationParams before a compressed gradient is started");
    blocks_ = environment().allocate_owned(quantizer_->bytes_of(count));
    residual_.assign(count, 0);
  }
  quantizer_->compress(buffer, blocks_.get(), count, residual_.data());
  gradient_request.add(operation.distribution->group(MLSL::GT_DATA)
                           .iallreduce(blocks_.get(), blocks_.get(), quantizer_->block_count(count),
                                       Dtype::opaque, quantizer_->sum()));
  gradient_request.at_end([buffer, count, this] { quantizer_->restore(blocks_.get(), buffer, count); });
}

void ParameterSetImpl::start_increments(void* buffer) {
  if (!communicates() || !kernels.has_distributed_update) return;
  if (buffer == nullptr) fail(increment_request.name() + ": the buffer is null");
  increment_request.begin();
  increment_result = buffer;
  const char* const own = static_cast<char*>(buffer) + element_count(owned_first) * bytes_of(kernels.type);
  guarded(increment_request.name().c_str(), [&] {
    increment_request.add(operation.distribution->group(MLSL::GT_DATA)
                              .iallgather(own, buffer, element_count(owned_count), dtype_of(kernels.type)));
  });
}

}  // namespace tutti::mlsl
