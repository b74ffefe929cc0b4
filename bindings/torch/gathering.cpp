// The collectives that gather tensors of every rank, to all ranks or to one. Knows neither completion of
// operations nor construction of groups.
#include <utility>

#include "bindings/torch/backend.hpp"
#include "bindings/torch/checks.hpp"
#include "bindings/torch/elements.hpp"
#include "bindings/torch/staging.hpp"
#include "bindings/torch/start.hpp"

namespace tutti::torch_binding {

using c10d::OpType;

// Where a rank has several inputs, they follow each other in the outputs, and every list of outputs gets all.
// Ranks may have tensors of different sizes, which all of them know.
WorkPointer TuttiBackend::allgather(TensorLists& outputs, Tensors& inputs,
                                    const c10d::AllgatherOptions& opts) {
  constexpr const char* kName = "allgather";
  TORCH_CHECK(!inputs.empty(), "tutti: ", kName, ": requires non-empty input tensor list");
  TORCH_CHECK(outputs.size() == inputs.size(), "tutti: ", kName,
              ": requires input/output tensor lists to have the same length, got ", inputs.size(), " and ",
              outputs.size());
  const at::Tensor& input = inputs.front();
  const std::size_t expected = inputs.size() * static_cast<std::size_t>(size_);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    TORCH_CHECK(outputs[i].size() == expected, "tutti: ", kName, ": invalid output tensor list at index ", i,
                " (expected length ", expected, ", got ", outputs[i].size(), ")");
    check_types(kName, outputs[i], input);
  }
  check_types(kName, inputs, input);
  const bool is_uneven = inputs.size() == 1 && !have_equal_sizes(outputs.front());
  if (is_uneven) {
    const at::Tensor& own = outputs.front()[static_cast<std::size_t>(rank_)];
    TORCH_CHECK(own.numel() == input.numel(), "tutti: ", kName, ": invalid tensor size at index ", rank_,
                " (expected ", input.sizes(), ", got ", own.sizes(), ")");
  } else {
    check_alike(kName, inputs, input);
    for (const Tensors& list : outputs) check_alike(kName, list, input);
  }
  const Elements elements = elements_to_move(kName, input);
  return start(
      {OpType::ALLGATHER, kName, "tutti:all_gather"}, input.device(), opts.timeout, inputs,
      [&](const CommGroup& group, Submitted* s) {
        Staging staging(s);
        const Tensors& list = outputs.front();
        void* to = staging.outputs(list);
        const int before = rank_ * static_cast<int>(inputs.size());
        const void* from = staging.inputs(inputs, behind(to, bytes_before(list, before)));
        for (std::size_t i = 1; i < outputs.size(); ++i) {
          s->finishers.emplace_back([list, copy = outputs[i]] {
            for (std::size_t k = 0; k < copy.size(); ++k) copy[k].copy_(list[k]);
          });
        }
        s->outputs = outputs;
        s->operations.push_back(is_uneven ? group.iallgatherv(from, to, counts_of(list, elements), {},
                                                              elements.dtype, call_options(opts, *s))
                                          : group.iallgather(from, to, elements.count(input) * inputs.size(),
                                                             elements.dtype, call_options(opts, *s)));
      });
}

WorkPointer TuttiBackend::gather_into(const Operation& operation, Tensors outputs, Tensors inputs,
                                      const c10d::AllgatherOptions& opts) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    elements_to_move(operation.name, inputs[i]);
    elements_to_move(operation.name, outputs[i]);
    TORCH_CHECK(outputs[i].scalar_type() == inputs[i].scalar_type(), "tutti: ", operation.name,
                ": output tensor must have the same type as input tensor, got ", outputs[i].scalar_type(),
                " and ", inputs[i].scalar_type());
    TORCH_CHECK(outputs[i].numel() == inputs[i].numel() * size_, "tutti: ", operation.name,
                ": output tensor size must be equal to world_size times input tensor size, got ",
                outputs[i].numel(), " elements for ", size_, " times ", inputs[i].numel());
  }
  return start(operation, device_of(inputs), opts.timeout, inputs, [&](const CommGroup& group, Submitted* s) {
    s->outputs = {outputs};
    Staging staging(s);
    const auto place = [&](std::size_t i, const void* to) {
      return behind(to, inputs[i].nbytes() * static_cast<std::uint64_t>(rank_));
    };
    const StagedPairs staged = stage_pairs(staging, inputs, outputs, place);
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Elements elements = elements_to_move(operation.name, inputs[i]);
      s->operations.push_back(group.iallgather(staged.from[i], staged.to[i], elements.count(inputs[i]),
                                               elements.dtype, call_options(opts, *s)));
    }
  });
}

WorkPointer TuttiBackend::_allgather_base(at::Tensor& output, at::Tensor& input,
                                          const c10d::AllgatherOptions& opts) {
  return gather_into({OpType::_ALLGATHER_BASE, "allgather_into_tensor", "tutti:_all_gather_base"}, {output},
                     {input}, opts);
}

WorkPointer TuttiBackend::allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) {
  constexpr const char* kName = "allgather_coalesced";
  TORCH_CHECK(!inputs.empty(), "tutti: ", kName, ": requires non-empty input tensor list");
  TORCH_CHECK(outputs.size() == static_cast<std::size_t>(size_), "tutti: ", kName,
              ": output lists should be equal to world size: expected ", size_, ", got ", outputs.size());
  std::vector<Tensors> gathered(inputs.size());  // by input, then by rank
  for (const Tensors& list : outputs) {
    TORCH_CHECK(list.size() == inputs.size(), "tutti: ", kName, ": invalid output size: (expected length ",
                inputs.size(), ", got ", list.size(), ")");
    for (std::size_t i = 0; i < list.size(); ++i) {
      TORCH_CHECK(list[i].sizes() == inputs[i].sizes(), "tutti: ", kName,
                  ": invalid size of output tensor at index ", i, " (expected ", inputs[i].sizes(), ", got ",
                  list[i].sizes(), ")");
      gathered[i].push_back(list[i]);
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) check_alike(kName, gathered[i], inputs[i]);
  return start({OpType::ALLGATHER_COALESCED, kName, "tutti:all_gather"}, inputs.front().device(),
               opts.timeout, inputs, [&](const CommGroup& group, Submitted* s) {
                 s->outputs = outputs;
                 Staging staging(s);
                 std::vector<void*> to;
                 std::vector<const void*> from;
                 for (const Tensors& list : gathered) to.push_back(staging.outputs(list));
                 for (std::size_t i = 0; i < inputs.size(); ++i)
                   from.push_back(staging.input(inputs[i], behind(to[i], bytes_before(gathered[i], rank_))));
                 for (std::size_t i = 0; i < inputs.size(); ++i) {
                   const Elements elements = elements_to_move(kName, inputs[i]);
                   s->operations.push_back(group.iallgather(from[i], to[i], elements.count(inputs[i]),
                                                            elements.dtype, call_options(opts, *s)));
                 }
               });
}

WorkPointer TuttiBackend::gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) {
  constexpr const char* kName = "gather";
  const int root = check_root(kName, opts.rootRank, size_);
  c10d::assertSingleElementInput(refuse(kName), inputs);
  if (rank_ == root) {
    check_list_per_rank(kName, false, outputs, size_);
    check_alike(kName, outputs.front(), inputs.front());
  } else {
    TORCH_CHECK(outputs.empty(), "tutti: ", kName, ": requires empty output on non-root");
  }
  const at::Tensor input = inputs.front();
  const Elements elements = elements_to_move(kName, input);
  return start({OpType::GATHER, kName, "tutti:gather"}, input.device(), opts.timeout, inputs,
               [&](const CommGroup& group, Submitted* s) {
                 Staging staging(s);
                 void* to = rank_ == root ? staging.outputs(outputs.front()) : nullptr;
                 const std::uint64_t bytes = input.nbytes() * static_cast<std::uint64_t>(rank_);
                 const void* from = staging.input(input, rank_ == root ? behind(to, bytes) : 0);
                 s->outputs = outputs;
                 s->operations.push_back(group.igather(from, to, elements.count(input), elements.dtype, root,
                                                       call_options(opts, *s)));
               });
}

#if TORCH_VERSION_MAJOR >= 2
WorkPointer TuttiBackend::allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                                          const c10d::AllgatherOptions& opts) {
  constexpr const char* kName = "allgather_into_tensor_coalesced";
  check_same_length(kName, outputs.size(), inputs.size());
  return gather_into({OpType::COALESCED, kName, "tutti:all_gather_into_tensor_coalesced"}, outputs, inputs,
                     opts);
}
#endif

}  // namespace tutti::torch_binding
