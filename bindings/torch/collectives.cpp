// The collectives of the backend. Knows neither how an operation completes nor how a group is made.
#include <c10/core/GradMode.h>
#include <torch/csrc/distributed/c10d/Utils.hpp>

#include <utility>

#include "bindings/torch/backend.hpp"
#include "bindings/torch/elements.hpp"
#include "bindings/torch/start.hpp"

namespace tutti::torch_binding {
namespace {

using c10d::OpType;

// What torch's own checks call with what is wrong.
auto refuse(const char* operation) {
  return [operation](const std::string& what) { TORCH_CHECK(false, "tutti: ", operation, ": ", what); };
}

int check_root(const char* operation, std::int64_t root, int size) {
  c10d::assertRootRank(refuse(operation), static_cast<int>(root), size);
  return static_cast<int>(root);
}

// Equal dtypes, shapes and layouts, as many as there are.
void check_alike(const char* operation, const Tensors& tensors, const at::Tensor& model) {
  c10d::assertTypeAndSizesMatch(refuse(operation), tensors, model.options(), model.sizes());
  for (const at::Tensor& tensor : tensors) elements_to_move(operation, tensor);
}

// A list with one list that has a tensor for each rank.
void check_list_per_rank(const char* operation, const char* side, const TensorLists& lists, int size) {
  TORCH_CHECK(lists.size() == 1, "tutti: ", operation, ": requires a single-element ", side,
              " list containing a list with ", size, " tensors.");
  TORCH_CHECK(lists.front().size() == static_cast<std::size_t>(size), "tutti: ", operation, ": Incorrect ",
              side, " list size ", lists.front().size(), ". It should be ", size,
              ", same as size of the process group.");
}

// One output per rank for the one input.
const at::Tensor& check_gathered(const char* operation, const TensorLists& outputs, const Tensors& inputs,
                                 int size) {
  c10d::assertSingleElementInput(refuse(operation), inputs);
  check_list_per_rank(operation, "output", outputs, size);
  check_alike(operation, outputs.front(), inputs.front());
  return inputs.front();
}

#if TORCH_VERSION_MAJOR >= 2
void check_same_length(const char* operation, std::size_t outputs, std::size_t inputs) {
  TORCH_CHECK(outputs == inputs, "tutti: ", operation,
              ": requires input/output tensor lists to have the same length, got ", inputs, " and ", outputs);
}

// An empty list may be anywhere.
at::Device device_of(const Tensors& tensors) { return tensors.empty() ? at::kCPU : tensors.front().device(); }
#endif

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

std::vector<std::uint64_t> counts_of(const Tensors& tensors, const Elements& elements) {
  std::vector<std::uint64_t> counts;
  for (const at::Tensor& tensor : tensors) counts.push_back(elements.count(tensor));
  return counts;
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
                 for (const at::Tensor& tensor : tensors) {
                   const Elements elements = elements_to_reduce(kName, tensor, opts.reduceOp);
                   void* data = Staging(s).in_place(tensor);
                   s->operations.push_back(group.iallreduce(
                       data, data, elements.count(tensor), elements.dtype,
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

// -- gathering ----------------------------------------------------------------------------------------------

WorkPointer TuttiBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& opts) {
  constexpr const char* kName = "allgather";
  const at::Tensor input = check_gathered(kName, outputs, inputs, size_);
  const Elements elements = elements_to_move(kName, input);
  return start({OpType::ALLGATHER, kName, "tutti:all_gather"}, input.device(), opts.timeout, inputs,
               [&](const CommGroup& group, Submitted* s) {
                 Staging staging(s);
                 const void* from = staging.input(input);
                 void* to = staging.outputs(outputs.front());
                 s->outputs = outputs;
                 s->operations.push_back(group.iallgather(from, to, elements.count(input), elements.dtype,
                                                          call_options(opts, *s)));
               });
}

void TuttiBackend::add_allgather(const CommGroup& group, const CallOptions& options, const char* name,
                                 const at::Tensor& output, const at::Tensor& input,
                                 Submitted* submitted) const {
  const Elements elements = elements_to_move(name, input);
  elements_to_move(name, output);
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "tutti: ", name,
              ": output tensor must have the same type as input tensor, got ", output.scalar_type(), " and ",
              input.scalar_type());
  TORCH_CHECK(output.numel() == input.numel() * size_, "tutti: ", name,
              ": output tensor size must be equal to world_size times input tensor size, got ",
              output.numel(), " elements for ", size_, " times ", input.numel());
  Staging staging(submitted);
  const void* from = staging.input(input);
  void* to = staging.output(output);
  submitted->operations.push_back(group.iallgather(from, to, elements.count(input), elements.dtype, options));
}

WorkPointer TuttiBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& opts) {
  return start({OpType::_ALLGATHER_BASE, "allgather_into_tensor", "tutti:_all_gather_base"}, input.device(),
               opts.timeout, {input}, [&](const CommGroup& group, Submitted* s) {
                 s->outputs = {{output}};
                 add_allgather(group, call_options(opts, *s), "allgather_into_tensor", output, input, s);
               });
}

WorkPointer TuttiBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) {
  constexpr const char* kName = "allgather_coalesced";
  c10d::assertNonEmpty(refuse(kName), inputs);
  TORCH_CHECK(outputs.size() == static_cast<std::size_t>(size_), "tutti: ", kName,
              ": output lists should be equal to world size: expected ", size_, ", got ", outputs.size());
  for (const Tensors& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(), "tutti: ", kName, ": invalid output size: (expected length ",
                inputs.size(), ", got ", list.size(), ")");
  }
  return start(
      {OpType::ALLGATHER_COALESCED, kName, "tutti:all_gather"}, inputs.front().device(), opts.timeout, inputs,
      [&](const CommGroup& group, Submitted* s) {
        s->outputs = outputs;
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          Tensors gathered;
          for (const Tensors& list : outputs) gathered.push_back(list[i]);
          check_alike(kName, gathered, inputs[i]);
          const Elements elements = elements_to_move(kName, inputs[i]);
          Staging staging(s);
          const void* from = staging.input(inputs[i]);
          s->operations.push_back(group.iallgather(from, staging.outputs(gathered), elements.count(inputs[i]),
                                                   elements.dtype, call_options(opts, *s)));
        }
      });
}

WorkPointer TuttiBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  constexpr const char* kName = "gather";
  const int root = check_root(kName, opts.rootRank, size_);
  c10d::assertSingleElementInput(refuse(kName), inputs);
  if (rank_ == root) {
    check_gathered(kName, outputs, inputs, size_);
  } else {
    TORCH_CHECK(outputs.empty(), "tutti: ", kName, ": requires empty output on non-root");
  }
  const at::Tensor input = inputs.front();
  const Elements elements = elements_to_move(kName, input);
  return start({OpType::GATHER, kName, "tutti:gather"}, input.device(), opts.timeout, inputs,
               [&](const CommGroup& group, Submitted* s) {
                 Staging staging(s);
                 const void* from = staging.input(input);
                 void* to = rank_ == root ? staging.outputs(outputs.front()) : nullptr;
                 s->outputs = outputs;
                 s->operations.push_back(group.igather(from, to, elements.count(input), elements.dtype, root,
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
    check_list_per_rank(kName, "input", inputs, size_);
    check_alike(kName, inputs.front(), output);
  } else {
    TORCH_CHECK(inputs.empty(), "tutti: ", kName, ": requires empty input on non-root");
  }
  return start({OpType::SCATTER, kName, "tutti:scatter"}, output.device(), opts.timeout,
               rank_ == root ? inputs.front() : Tensors(), [&](const CommGroup& group, Submitted* s) {
                 Staging staging(s);
                 const void* from = rank_ == root ? staging.inputs(inputs.front()) : nullptr;
                 void* to = staging.output(output);
                 s->outputs = {outputs};
                 s->operations.push_back(group.iscatter(from, to, elements.count(output), elements.dtype,
                                                        root, call_options(opts, *s)));
               });
}

WorkPointer TuttiBackend::reduce_scatter(Tensors& outputs, TensorLists& inputs,
                                         const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kName = "reduce_scatter";
  c10d::assertSingleElementOutput(refuse(kName), outputs);
  check_list_per_rank(kName, "input", inputs, size_);
  const Tensors& blocks = inputs.front();
  const at::Tensor output = outputs.front();
  const Elements elements = elements_to_reduce(kName, output, opts.reduceOp);
  for (const at::Tensor& block : blocks) elements_to_move(kName, block);
  for (std::size_t i = 0; i < blocks.size(); ++i)
    c10d::assertTypeMatch(refuse(kName), output.options(), blocks, i);
  const at::Tensor& mine = blocks[static_cast<std::size_t>(rank_)];
  TORCH_CHECK(mine.numel() == output.numel(), "tutti: ", kName, ": input ", rank_,
              " must be as large as the output, got ", mine.numel(), " and ", output.numel(), " elements");
  return start({OpType::REDUCE_SCATTER, kName, "tutti:reduce_scatter"}, output.device(), opts.timeout, blocks,
               [&](const CommGroup& group, Submitted* s) {
                 const Reduction reduction = reduction_of(kName, opts.reduceOp, elements);
                 const std::vector<std::uint64_t> counts = counts_of(blocks, elements);
                 Staging staging(s);
                 const void* from = staging.inputs(blocks);
                 void* to = staging.output(output);
                 s->outputs = {outputs};
                 s->operations.push_back(are_equal(counts)
                                             ? group.ireduce_scatter(from, to, counts.front(), elements.dtype,
                                                                     reduction, call_options(opts, *s))
                                             : group.ireduce_scatterv(from, to, counts, elements.dtype,
                                                                      reduction, call_options(opts, *s)));
               });
}

void TuttiBackend::add_reduce_scatter(const CommGroup& group, const CallOptions& options, const char* name,
                                      const at::Tensor& output, const at::Tensor& input,
                                      const c10d::ReduceOp& op, Submitted* submitted) const {
  const Elements elements = elements_to_reduce(name, output, op);
  elements_to_move(name, input);
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "tutti: ", name,
              ": input tensor must be the same type as the output tensor, got ", input.scalar_type(), " and ",
              output.scalar_type());
  TORCH_CHECK(input.numel() == output.numel() * size_, "tutti: ", name,
              ": input tensor must be the same size as output size times world size, got ", input.numel(),
              " elements for ", size_, " times ", output.numel());
  Staging staging(submitted);
  const void* from = staging.input(input);
  void* to = staging.output(output);
  submitted->operations.push_back(group.ireduce_scatter(from, to, elements.count(output), elements.dtype,
                                                        reduction_of(name, op, elements), options));
}

WorkPointer TuttiBackend::_reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                               const c10d::ReduceScatterOptions& opts) {
  return start({OpType::_REDUCE_SCATTER_BASE, "reduce_scatter_tensor", "tutti:_reduce_scatter_base"},
               input.device(), opts.timeout, {input}, [&](const CommGroup& group, Submitted* s) {
                 s->outputs = {{output}};
                 add_reduce_scatter(group, call_options(opts, *s), "reduce_scatter_tensor", output, input,
                                    opts.reduceOp, s);
               });
}

// -- everybody to everybody ---------------------------------------------------------------------------------

WorkPointer TuttiBackend::alltoall_base(at::Tensor& output, at::Tensor& input,
                                        std::vector<std::int64_t>& output_splits,
                                        std::vector<std::int64_t>& input_splits,
                                        const c10d::AllToAllOptions& opts) {
  constexpr const char* kName = "alltoall_base";
  const Elements elements = elements_to_move(kName, input);
  elements_to_move(kName, output);
  TORCH_CHECK(output.scalar_type() == input.scalar_type(), "tutti: ", kName,
              ": tensors are not equal in data type: ", output.scalar_type(), " and ", input.scalar_type());
  const std::vector<std::uint64_t> sent = counts_of_splits(input_splits, input, size_, elements);
  const std::vector<std::uint64_t> received = counts_of_splits(output_splits, output, size_, elements);
  const bool is_even = output_splits.empty() && input_splits.empty();
  TORCH_CHECK(!is_even || input.numel() == output.numel(), "tutti: ", kName,
              ": tensors are not equal in size: ", input.numel(), " and ", output.numel(), " elements");
  return start({OpType::ALLTOALL_BASE, kName, "tutti:all_to_all"}, input.device(), opts.timeout, {input},
               [&](const CommGroup& group, Submitted* s) {
                 Staging staging(s);
                 const void* from = staging.input(input);
                 void* to = staging.output(output);
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
  for (const Tensors* tensors : {&inputs, &outputs}) {
    for (std::size_t i = 0; i < tensors->size(); ++i) {
      elements_to_move(kName, (*tensors)[i]);
      c10d::assertTypeMatch(refuse(kName), inputs.front().options(), *tensors, i);
    }
  }
  const Elements elements = elements_to_move(kName, inputs.front());
  return start({OpType::ALLTOALL, kName, "tutti:all_to_all"}, inputs.front().device(), opts.timeout, inputs,
               [&](const CommGroup& group, Submitted* s) {
                 Staging staging(s);
                 const void* from = staging.inputs(inputs);
                 void* to = staging.outputs(outputs);
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

WorkPointer TuttiBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& opts) {
  constexpr const char* kName = "allgather_into_tensor_coalesced";
  check_same_length(kName, outputs.size(), inputs.size());
  return start({OpType::COALESCED, kName, "tutti:all_gather_into_tensor_coalesced"}, device_of(inputs),
               opts.timeout, inputs, [&](const CommGroup& group, Submitted* s) {
                 s->outputs = {outputs};
                 for (std::size_t i = 0; i < inputs.size(); ++i)
                   add_allgather(group, call_options(opts, *s), kName, outputs[i], inputs[i], s);
               });
}

WorkPointer TuttiBackend::reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::ReduceScatterOptions& opts) {
  constexpr const char* kName = "reduce_scatter_tensor_coalesced";
  check_same_length(kName, outputs.size(), inputs.size());
  return start({OpType::REDUCE_SCATTER_TENSOR_COALESCED, kName, "tutti:reduce_scatter_tensor_coalesced"},
               device_of(inputs), opts.timeout, inputs, [&](const CommGroup& group, Submitted* s) {
                 s->outputs = {outputs};
                 for (std::size_t i = 0; i < inputs.size(); ++i)
                   add_reduce_scatter(group, call_options(opts, *s), kName, outputs[i], inputs[i],
                                      opts.reduceOp, s);
               });
}
#endif

}  // namespace tutti::torch_binding
