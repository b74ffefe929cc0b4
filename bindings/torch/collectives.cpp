// The collectives of the backend except gathering ones. Knows neither completion of operations nor
// construction of groups.
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <utility>

#include "bindings/torch/backend.hpp"
#include "bindings/torch/checks.hpp"
#include "bindings/torch/elements.hpp"
#include "bindings/torch/staging.hpp"
#include "bindings/torch/start.hpp"

namespace tutti::torch_binding {
namespace {

using c10d::OpType;

// target = target op source, for the tensors that one rank gives to one call.
void combine(const char* operation, const at::Tensor& target, const at::Tensor& source,
             const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
      target.add_(source);
      return;
    case c10d::ReduceOp::PRODUCT:
      target.mul_(source);
      return;
    case c10d::ReduceOp::MIN:
      target.copy_(at::minimum(target, source));
      return;
    case c10d::ReduceOp::MAX:
      target.copy_(at::maximum(target, source));
      return;
    case c10d::ReduceOp::BAND:
      target.bitwise_and_(source);
      return;
    case c10d::ReduceOp::BOR:
      target.bitwise_or_(source);
      return;
    case c10d::ReduceOp::BXOR:
      target.bitwise_xor_(source);
      return;
    default:
      TORCH_CHECK(false, "tutti: ", operation, ": with this op it takes one tensor");
  }
}

bool are_equal(const std::vector<std::uint64_t>& counts) {
  for (const std::uint64_t count : counts) {
    if (count != counts.front()) return false;
  }
  return true;
}

// Rows for each rank, in elements; no splits: the same for all.
std::vector<std::uint64_t> counts_of_splits(const std::vector<std::int64_t>& splits, const at::Tensor& tensor,
                                            int size, const Elements& elements) {
  c10d::checkSplitSizes(splits, tensor, size);
  const std::uint64_t rows = static_cast<std::uint64_t>(tensor.size(0));
  const std::uint64_t row = rows == 0 ? 0 : elements.count(tensor) / rows;
  std::vector<std::uint64_t> counts;
  counts.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    counts.push_back(splits.empty()
                         ? row * (rows / static_cast<std::uint64_t>(size))
                         : row * static_cast<std::uint64_t>(splits[static_cast<std::size_t>(rank)]));
  }
  return counts;
}

}  // namespace

// -- one tensor, the same everywhere ------------------------------------------------------------------------

WorkPointer TuttiBackend::broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) {
  constexpr const char* kName = "broadcast";
  const int root = check_root(kName, opts.rootRank, size_);
  c10d::assertRootTensor(refuse(kName), static_cast<int>(opts.rootTensor), static_cast<int>(tensors.size()));
  const at::Tensor tensor = tensors[static_cast<std::size_t>(opts.rootTensor)];
  check_alike(kName, tensors, tensors.front());
  const Elements elements = elements_to_move(kName, tensor);
  return start({OpType::BROADCAST, kName, "tutti:broadcast"}, tensor.device(), opts.timeout, tensors,
               [&](const CommGroup& group, Submitted* s) {
                 void* data = Staging(s).in_place(tensor);
                 for (const at::Tensor& other : tensors) {
                   if (!other.is_same(tensor))
                     s->finishers.emplace_back([other, tensor] { other.copy_(tensor); });
                 }
                 s->outputs = {tensors};
                 s->operations.push_back(group.ibroadcast(data, elements.count(tensor), elements.dtype, root,
                                                          call_options(opts, *s)));
               });
}

WorkPointer TuttiBackend::allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  constexpr const char* kName = "allreduce";
  c10d::assertNonEmpty(refuse(kName), tensors);
  c10d::assertLayoutMatch(refuse(kName), tensors);
  if (tensors.front().layout() == at::kSparse) return reduce_sparse(tensors, opts);
  const at::Tensor tensor = tensors.front();
  const Elements elements = elements_to_reduce(kName, tensor, opts.reduceOp);
  check_alike(kName, tensors, tensor);
  return start({OpType::ALLREDUCE, kName, "tutti:all_reduce"}, tensor.device(), opts.timeout, tensors,
               [&](const CommGroup& group, Submitted* s) {
                 const Reduction reduction = reduction_of(kName, opts.reduceOp, elements);
                 for (std::size_t i = 1; i < tensors.size(); ++i) {
                   const c10::NoGradGuard no_grad;
                   combine(kName, tensor, tensors[i], opts.reduceOp);
                 }
                 void* data = Staging(s).in_place(tensor);
                 for (std::size_t i = 1; i < tensors.size(); ++i) {
                   s->finishers.emplace_back([tensor, other = tensors[i]] { other.copy_(tensor); });
                 }
                 s->outputs = {tensors};
                 s->operations.push_back(group.iallreduce(data, data, elements.count(tensor), elements.dtype,
                                                          reduction, call_options(opts, *s)));
               });
}

WorkPointer TuttiBackend::allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) {
  constexpr const char* kName = "allreduce_coalesced";
  c10d::assertNonEmpty(refuse(kName), tensors);
  for (const at::Tensor& tensor : tensors) elements_to_reduce(kName, tensor, opts.reduceOp);
  return start({OpType::ALLREDUCE_COALESCED, kName, "tutti:all_reduce"}, tensors.front().device(),
               opts.timeout, tensors, [&](const CommGroup& group, Submitted* s) {
                 s->outputs = {tensors};
                 Staging staging(s);
                 std::vector<void*> data;
                 for (const at::Tensor& tensor : tensors) data.push_back(staging.in_place(tensor));
                 for (std::size_t i = 0; i < tensors.size(); ++i) {
                   const Elements elements = elements_to_reduce(kName, tensors[i], opts.reduceOp);
                   s->operations.push_back(group.iallreduce(
                       data[i], data[i], elements.count(tensors[i]), elements.dtype,
                       reduction_of(kName, opts.reduceOp, elements), call_options(opts, *s)));
                 }
               });
}

WorkPointer TuttiBackend::reduce(Tensors& tensors, const c10d::ReduceOptions& opts) {
  constexpr const char* kName = "reduce";
  const int root = check_root(kName, opts.rootRank, size_);
  c10d::assertRootTensor(refuse(kName), static_cast<int>(opts.rootTensor), static_cast<int>(tensors.size()));
  c10d::assertSingleElement(refuse(kName), tensors);
  const at::Tensor tensor = tensors.front();
  const Elements elements = elements_to_reduce(kName, tensor, opts.reduceOp);
  return start({OpType::REDUCE, kName, "tutti:reduce"}, tensor.device(), opts.timeout, tensors,
               [&](const CommGroup& group, Submitted* s) {
                 Staging staging(s);
                 const void* input = rank_ == root ? staging.in_place(tensor) : staging.input(tensor);
                 void* output = rank_ == root ? const_cast<void*>(input) : nullptr;
                 s->outputs = {tensors};
                 s->operations.push_back(group.ireduce(input, output, elements.count(tensor), elements.dtype,
                                                       reduction_of(kName, opts.reduceOp, elements), root,
                                                       call_options(opts, *s)));
               });
}

// -- scattering ---------------------------------------------------------------------------------------------

WorkPointer TuttiBackend::scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) {
  constexpr const char* kName = "scatter";
  const int root = check_root(kName, opts.rootRank, size_);
  c10d::assertSingleElementOutput(refuse(kName), outputs);
  const at::Tensor output = outputs.front();
  const Elements elements = elements_to_move(kName, output);
  if (rank_ == root) {
    check_list_per_rank(kName, true, inputs, size_);
    check_alike(kName, inputs.front(), output);
  } else {
    TORCH_CHECK(inputs.empty(), "tutti: ", kName, ": requires empty input on non-root");
  }
  return start({OpType::SCATTER, kName, "tutti:scatter"}, output.device(), opts.timeout,
               rank_ == root ? inputs.front() : Tensors(), [&](const CommGroup& group, Submitted* s) {
                 Staging staging(s);
                 void* to = staging.output(output);
                 const std::uint64_t bytes = output.nbytes() * static_cast<std::uint64_t>(rank_);
                 const void* from =
                     rank_ == root ? staging.inputs(inputs.front(), in_front_of(to, bytes)) : nullptr;
                 s->outputs = {outputs};
                 s->operations.push_back(group.iscatter(from, to, elements.count(output), elements.dtype,
                                                        root, call_options(opts, *s)));
               });
}

WorkPointer TuttiBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                         const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kName = "reduce_scatter";
  c10d::assertSingleElementOutput(refuse(kName), outputs);
  check_list_per_rank(kName, true, inputs, size_);
  const Tensors& blocks = inputs.front();
  const at::Tensor output = outputs.front();
  const Elements elements = elements_to_reduce(kName, output, opts.reduceOp);
  check_types(kName, blocks, output);
  const at::Tensor& mine = blocks[static_cast<std::size_t>(rank_)];
  TORCH_CHECK(mine.numel() == output.numel(), "tutti: ", kName, ": input ", rank_,
              " must be as large as the output, got ", mine.numel(), " and ", output.numel(), " elements");
  return start({OpType::REDUCE_SCATTER, kName, "tutti:reduce_scatter"}, output.device(), opts.timeout, blocks,
               [&](const CommGroup& group, Submitted* s) {
                 const Reduction reduction = reduction_of(kName, opts.reduceOp, elements);
                 const std::vector<std::uint64_t> counts = counts_of(blocks, elements);
                 Staging staging(s);
                 void* to = staging.output(output);
                 const void* from = staging.inputs(blocks, in_front_of(to, bytes_before(blocks, rank_)));
                 s->outputs = {outputs};
                 s->operations.push_back(are_equal(counts)
                                             ? group.ireduce_scatter(from, to, counts.front(), elements.dtype,
                                                                     reduction, call_options(opts, *s))
                                             : group.ireduce_scatterv(from, to, counts, elements.dtype,
                                                                      reduction, call_options(opts, *s)));
               });
}

WorkPointer TuttiBackend::reduce_scatter_from(const Operation& operation, Tensors outputs, Tensors inputs,
                                              const c10d::ReduceScatterOptions& opts) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    elements_to_reduce(operation.name, outputs[i], opts.reduceOp);
    elements_to_move(operation.name, inputs[i]);
    TORCH_CHECK(outputs[i].scalar_type() == inputs[i].scalar_type(), "tutti: ", operation.name,
                ": input tensor must be the same type as the output tensor, got ", inputs[i].scalar_type(),
                " and ", outputs[i].scalar_type());
    TORCH_CHECK(inputs[i].numel() == outputs[i].numel() * size_, "tutti: ", operation.name,
                ": input tensor must be the same size as output size times world size, got ",
                inputs[i].numel(), " elements for ", size_, " times ", outputs[i].numel());
  }
  return start(operation, device_of(inputs), opts.timeout, inputs, [&](const CommGroup& group, Submitted* s) {
    s->outputs = {outputs};
    Staging staging(s);
    const auto place = [&](std::size_t i, const void* to) {
      return in_front_of(to, outputs[i].nbytes() * static_cast<std::uint64_t>(rank_));
    };
    const StagedPairs staged = stage_pairs(staging, inputs, outputs, place);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Elements elements = elements_to_reduce(operation.name, outputs[i], opts.reduceOp);
      s->operations.push_back(group.ireduce_scatter(
          staged.from[i], staged.to[i], elements.count(outputs[i]), elements.dtype,
          reduction_of(operation.name, opts.reduceOp, elements), call_options(opts, *s)));
    }
  });
}

WorkPointer TuttiBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& opts) {
  return reduce_scatter_from(
      {OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", "tutti:_reduce_scatter_base"}, {output},
      {input}, opts);
}

// -- all to all ---------------------------------------------------------------------------------------------

WorkPointer TuttiBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<std::int64_t>& output_splits,
                                        std::vector<std::int64_t>& input_splits,
                                        const c10d::AllToAllOptions& opts) {
  constexpr const char* kName = "alltoall_base";
  const Elements elements = elements_to_move(kName, input);
  elements_to_move(kName, output);
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "tutti: ", kName,
              ": Tensors are not equal in size or data type: ", output.scalar_type(), " and ",
              input.scalar_type());
  const std::vector<std::uint64_t> sent = counts_of_splits(input_splits, input, size_, elements);
  const std::vector<std::uint64_t> received = counts_of_splits(output_splits, output, size_, elements);
  const bool is_even = output_splits.empty() && input_splits.empty();
  TORCH_CHECK(!is_even || input.numel() == output.numel(), "tutti: ", kName,
              ": Tensors are not equal in size or data type: ", input.numel(), " and ", output.numel(),
              " elements");
  return start({OpType::ALLTOALL_BASE, kName, "tutti:all_to_all"}, input.device(), opts.timeout, {input},
               [&](const CommGroup& group, Submitted* s) {
                 Staging staging(s);
                 void* to = staging.output(output);
                 const void* from = staging.input(input, is_even ? behind(to, 0) : 0);
                 s->outputs = {{output}};
                 s->operations.push_back(
                     is_even ? group.ialltoall(from, to, sent.front(), elements.dtype, call_options(opts, *s))
                             : group.ialltoallv(from, sent, {}, to, received, {}, elements.dtype,
                                                call_options(opts, *s)));
               });
}

WorkPointer TuttiBackend::alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) {
  constexpr const char* kName = "alltoall";
  TORCH_CHECK(inputs.size() == static_cast<std::size_t>(size_) && outputs.size() == inputs.size(),
              "tutti: ", kName, ": expected one input and one output for each of ", size_, " ranks, got ",
              inputs.size(), " and ", outputs.size());
  for (const Tensors* tensors : {&inputs, &outputs}) check_types(kName, *tensors, inputs.front());
  const Elements elements = elements_to_move(kName, inputs.front());
  return start({OpType::ALLTOALL, kName, "tutti:all_to_all"}, inputs.front().device(), opts.timeout, inputs,
               [&](const CommGroup& group, Submitted* s) {
                 Staging staging(s);
                 void* to = staging.outputs(outputs);
                 const void* from = staging.inputs(inputs);
                 s->outputs = {outputs};
                 s->operations.push_back(group.ialltoallv(from, counts_of(inputs, elements), {}, to,
                                                          counts_of(outputs, elements), {}, elements.dtype,
                                                          call_options(opts, *s)));
               });
}

// -- several at once (torch 2) ------------------------------------------------------------------------------

#if TORCH_VERSION_MAJOR >= 2
WorkPointer TuttiBackend::allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  return allreduce(tensors, opts);
}

WorkPointer TuttiBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kName = "reduce_scatter_tensor_coalesced";
  check_same_length(kName, outputs.size(), inputs.size());
  return reduce_scatter_from(
      {OpType::REDUCE_SCATTER_TENSOR_COALESCED, kName, "tutti:reduce_scatter_tensor_coalesced"}, outputs,
      inputs, opts);
}
#endif

}  // namespace tutti::torch_binding
