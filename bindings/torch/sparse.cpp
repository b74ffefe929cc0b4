// The allreduce of sparse tensors: every rank gathers the rows of all, and adds. Knows no other collective.
#include <c10/core/GradMode.h>

#include <utility>

#include "bindings/torch/backend.hpp"
#include "bindings/torch/elements.hpp"

namespace tutti::torch_binding {

at::Tensor TuttiBackend::gather_rows(const at::Tensor& rows, const std::vector<std::int64_t>& counts,
                                     Milliseconds timeout) {
  const Elements elements = elements_to_move("allreduce", rows);
  std::vector<std::int64_t> sizes = rows.sizes().vec();
  std::uint64_t per_row = elements.per_scalar;
  for (std::size_t i = 1; i < sizes.size(); ++i) per_row *= static_cast<std::uint64_t>(sizes[i]);
  std::vector<std::uint64_t> blocks;
  sizes[0] = 0;
  for (const std::int64_t count : counts) {
    sizes[0] += count;
    blocks.push_back(static_cast<std::uint64_t>(count) * per_row);
  }
  const at::Tensor plain = rows.contiguous();
  at::Tensor all = at::empty(sizes, rows.options().requires_grad(false));
  membership_
      ->use([&](const CommGroup& group) {
        return group.iallgatherv(plain.data_ptr(), all.data_ptr(), blocks, {}, elements.dtype);
      })
      .wait_within(timeout);
  return all;
}

// Done when it returns: what the second step sends depends on what the first has brought.
WorkPointer TuttiBackend::reduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) {
  constexpr const char* kName = "allreduce";
  TORCH_CHECK(opts.reduceOp.op_ == c10d::ReduceOp::SUM, "tutti: ", kName,
              ": sparse tensors can be summed only");
  const c10::NoGradGuard no_grad;
  at::Tensor mine = tensors.front();
  TORCH_CHECK(mine.device().is_cpu(), "tutti: ", kName,
              ": unsupported device type: sparse tensors of the CPU only, got one of ", mine.device());
  for (std::size_t i = 1; i < tensors.size(); ++i) mine = mine + tensors[i];
  mine = mine.coalesce();
  std::vector<std::int64_t> shape = {mine._nnz(), mine.sparse_dim()};
  shape.insert(shape.end(), mine.sizes().begin(), mine.sizes().end());
  const auto length = static_cast<std::int64_t>(shape.size());
  const Milliseconds timeout =
      opts.timeout > kNoTimeout ? opts.timeout : timeout_.load(std::memory_order_relaxed);
  at::Tensor total;
  try {
    const at::Tensor all =
        gather_rows(at::tensor(shape, at::kLong).unsqueeze(0),
                    std::vector<std::int64_t>(static_cast<std::size_t>(size_), 1), timeout);
    std::vector<std::int64_t> counts;
    for (int rank = 0; rank < size_; ++rank) {
      counts.push_back(all[rank][0].item<std::int64_t>());
      TORCH_CHECK(all[rank].narrow(0, 1, length - 1).equal(all[rank_].narrow(0, 1, length - 1)),
                  "tutti: ", kName, ": sparse tensors must have the same sizes on all ranks; those of rank ",
                  rank, " and rank ", rank_, " differ");
    }
    const at::Tensor indices = gather_rows(mine.indices().t(), counts, timeout).t();
    const at::Tensor values = gather_rows(mine.values(), counts, timeout);
    total = at::sparse_coo_tensor(indices, values, mine.sizes()).coalesce();
  } catch (const Error& error) {
    std::rethrow_exception(to_torch_exception(error, kName));
  }
  for (const at::Tensor& tensor : tensors) tensor.copy_(total);
  Submitted done;
  done.outputs = {tensors};
  return finish_start({c10d::OpType::ALLREDUCE, kName, "tutti:sparse_all_reduce"}, opts.timeout, tensors,
                      std::move(done));
}

}  // namespace tutti::torch_binding
