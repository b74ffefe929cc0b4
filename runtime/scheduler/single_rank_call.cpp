// Calls in a group of one rank.
#include "runtime/scheduler/single_rank_call.hpp"

#include "runtime/base/kernels.hpp"
#include "runtime/scheduler/group_context.hpp"

namespace tutti {

std::unique_ptr<SingleRankCall> SingleRankCall::make(GroupContext& group, const Prepared& prepared,
                                                     const Call& call) {
  // For longer calls the copy itself costs more than an operation.
  constexpr std::size_t kMostBytes = std::size_t{64} << 10U;
  const bool is_scaled =
      is_reducing(call.collective) && (scales_before(call.op.op) || scales_after(call.op.op));
  // A trace wants the times of an operation.
  const bool is_traced = group.engine_.trace() != nullptr;
  if (is_scaled || (is_reducing(call.collective) && call.op.op == Op::user) || has_uneven_blocks(call) ||
      is_traced)
    return nullptr;
  if (call.collective == Collective::send_recv || prepared.vector_bytes > kMostBytes) return nullptr;
  // One rank's exclusive prefix is empty, and a broadcast has its data where it belongs.
  const bool copies = call.collective != Collective::exscan && call.collective != Collective::broadcast &&
                      call.collective != Collective::barrier;
  const std::size_t bytes = copies ? call.count * element_bytes(call) : 0;
  return std::unique_ptr<SingleRankCall>(new SingleRankCall(group, prepared.contract, bytes));
}

bool SingleRankCall::run(const Call& call, WorkRef*) {
  // submit() tells two threads, and a group that has failed, what is wrong.
  if (group_.has_failed() || group_.is_submitting_.load(std::memory_order_relaxed)) return false;
  const std::uint32_t sequence = group_.next_sequence_.load(std::memory_order_relaxed);
  group_.remember(sequence, group_.submitted_.digest_with(contract_), contract_);
  if (bytes_ != 0 && !call.in_place) copy_bytes(call.output, call.input, bytes_);
  return true;
}

}  // namespace tutti
