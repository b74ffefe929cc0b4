// Argument checks of named tensors. See tensor_call.hpp.
#include "runtime/training/tensor_call.hpp"

#include <fmt/format.h>

#include <numeric>
#include <string>

#include "runtime/base/ops.hpp"
#include "runtime/base/wire_setting.hpp"

namespace tutti {
namespace {

bool is_offered(Collective collective) {
  return collective == Collective::allreduce || collective == Collective::broadcast ||
         collective == Collective::allgather || collective == Collective::reduce_scatter ||
         collective == Collective::alltoall || collective == Collective::barrier;
}

Status check_kinds(const std::string& where, const TensorCall& call) {
  if (!is_offered(call.collective))
    return invalid_argument(fmt::format(
        "{}: {} is not offered by name; expected allreduce, broadcast, allgather, reduce_scatter, alltoall "
        "or barrier",
        where, to_string(call.collective)));
  if (call.dtype == Dtype::opaque || call.op.op() == Op::user || call.op.op() == Op::premul_sum)
    return invalid_argument(fmt::format(
        "{}: user-defined operations, premul_sum and opaque elements are not offered by name; see prescale",
        where));
  if (is_reducing(call.collective) && !is_legal(call.op.op(), call.dtype))
    return invalid_argument(fmt::format("{}: {} on {}: {}", where, to_string(call.op.op()),
                                        to_string(call.dtype), why_illegal(call.op.op(), call.dtype)));
  const bool is_scalable =
      class_of(call.dtype) == DtypeClass::floating || class_of(call.dtype) == DtypeClass::complex;
  if ((call.prescale != 1 || call.postscale != 1) && !is_scalable)
    return invalid_argument(fmt::format("{}: prescale and postscale need a floating dtype, not {}", where,
                                        to_string(call.dtype)));
  const bool is_linear = call.op.op() == Op::sum || call.op.op() == Op::avg;
  if (call.memory == Memory::device && call.collective == Collective::reduce_scatter && call.prescale != 1 &&
      !is_linear)
    return invalid_argument(fmt::format(
        "{}: on a GPU the inputs of reduce_scatter are scaled for sum and avg alone; scale them before",
        where));
  return {};
}

Status check_wire_dtype(const std::string& where, const TensorCall& tensor) {
  Call call;
  call.collective = tensor.collective;
  call.dtype = tensor.dtype;
  call.op.op = tensor.op.op();
  call.wire_dtype = tensor.wire_dtype;
  return check_wire_dtype(where, call);
}

bool may_have_feedback(const TensorCall& call) {
  return call.collective == Collective::allreduce && call.dtype == Dtype::f32 &&
         (call.op.op() == Op::sum || call.op.op() == Op::avg) && call.memory != Memory::device;
}

Status check_splits(const std::string& where, const TensorCall& call, std::uint32_t size) {
  if (!call.splits.empty() && call.splits.size() != size)
    return invalid_argument(fmt::format("{}: {} splits for {} ranks", where, call.splits.size(), size));
  const std::uint64_t rows = call.shape[0];
  const std::uint64_t sum = std::accumulate(call.splits.begin(), call.splits.end(), std::uint64_t{0});
  if (call.splits.empty() && rows % size != 0)
    return invalid_argument(fmt::format(
        "{}: the first dimension has {} rows, which {} ranks do not divide; give splits", where, rows, size));
  if (!call.splits.empty() && sum != rows)
    return invalid_argument(fmt::format(
        "{}: the first dimension has {} rows, which is not the sum of the splits, {}", where, rows, sum));
  return {};
}

Status check_shape(const std::string& where, const TensorCall& call, std::uint32_t size) {
  if (call.shape.size() > kMaxTensorDimensions)
    return invalid_argument(
        fmt::format("{}: {} dimensions; at most {}", where, call.shape.size(), kMaxTensorDimensions));
  const bool has_rows =
      has_free_first_dimension(call.collective) || call.collective == Collective::reduce_scatter;
  if (has_rows && call.shape.empty())
    return invalid_argument(fmt::format("{}: {} needs a first dimension, and the shape has none", where,
                                        to_string(call.collective)));
  return call.collective == Collective::alltoall ? check_splits(where, call, size) : Status();
}

}  // namespace

Status check_tensor_call(std::string_view name, const TensorCall& call, std::uint32_t size) {
  if (name.empty() || name.size() > kMaxTensorNameBytes || name.front() == '\0')
    return invalid_argument(
        fmt::format("a tensor's name has 1 to {} bytes, and no zero byte in front", kMaxTensorNameBytes));
  const std::string where = fmt::format("tensor \"{}\"", name);
  TUTTI_RETURN_IF_ERROR(check_kinds(where, call));
  TUTTI_RETURN_IF_ERROR(check_shape(where, call, size));
  TUTTI_RETURN_IF_ERROR(check_wire_dtype(where, call));
  if (call.error_feedback.value_or(false) && !may_have_feedback(call))
    return invalid_argument(fmt::format(
        "{}: error_feedback: only sums and averages of f32 by allreduce have it, in the memory of "
        "the host",
        where));
  if (call.collective == Collective::broadcast && (call.root < 0 || call.root >= static_cast<int>(size)))
    return invalid_argument(
        fmt::format("{}: root {}: expected a rank of the group, 0 to {}", where, call.root, size - 1));
  if (!call.batch.empty() && (call.batch_size == 0 || call.batch.size() > kMaxTensorNameBytes))
    return invalid_argument(fmt::format("{}: a batch has a name and says how many tensors it has", where));
  return {};
}

bool has_feedback(const TensorCall& call, bool by_default) {
  return call.error_feedback.value_or(by_default) && may_have_feedback(call);
}

TensorRequest make_tensor_request(std::string_view name, const TensorCall& call) {
  TensorRequest request;
  request.name = name;
  TensorSignature& s = request.signature;
  s.collective = call.collective;
  s.dtype = call.dtype;
  s.op = is_reducing(call.collective) ? call.op.op() : Op::sum;
  s.is_device = call.memory == Memory::device;
  s.root = call.collective == Collective::broadcast ? call.root : -1;
  s.priority = call.priority;
  s.prescale = call.prescale;
  s.postscale = call.postscale;
  s.wire_dtype = call.wire_dtype;
  s.shape.assign(call.shape.begin(), call.shape.end());
  s.batch = call.batch;
  s.batch_size = call.batch.empty() ? 0 : call.batch_size;
  if (has_free_first_dimension(call.collective) && !s.shape.empty()) {
    if (call.collective == Collective::allgather) request.rows = s.shape[0];
    s.shape.erase(s.shape.begin());
  }
  return request;
}

std::vector<std::uint64_t> rows_to_ranks(const TensorCall& call, std::uint32_t size) {
  if (call.collective != Collective::alltoall) return {};
  if (call.splits.empty()) return std::vector<std::uint64_t>(size, call.shape[0] / size);
  return {call.splits.begin(), call.splits.end()};
}

}  // namespace tutti
