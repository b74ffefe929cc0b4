// Named tensors: collectives whose order the ranks need not agree on. A program submits tensors by name, from any
// thread, in any order; each is communicated once all ranks have submitted it. Small ones share an operation.
//
//   tutti::TensorQueue tensors(world);
//   tutti::Work work = tensors.submit("conv1/kernel", {.input = gradient, .output = gradient,
//                                                       .dtype = tutti::Dtype::f32, .shape = shape,
//                                                       .op = tutti::Op::avg});
//   work.wait();
//
// Errors: submit() throws what is wrong with its arguments. A disagreement of ranks is thrown by wait(), on every
//   rank that submitted the tensor; the text names who submitted what. Other tensors go on.
// Threads: all functions may be called by any thread at any time. Threads that submit, test or wait negotiate and
//   start operations on the way, else a thread of the queue does. So a completion callback may run in submit().
// Cost: one small allreduce per cycle (TUTTI_FUSION_CYCLE) while tensors are under way; names that ranks have
//   agreed on before are one bit of it (TUTTI_CACHE_CAPACITY).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

#include "tutti/tutti.hpp"

#pragma GCC visibility push(default)
namespace tutti {

struct TensorCall {
  // allreduce, broadcast, allgather, reduce_scatter, alltoall or barrier.
  Collective collective = Collective::allreduce;
  // Belong to the operation until its Work is complete. In place: equal, for allreduce and broadcast.
  const void* input = nullptr;
  void* output = nullptr;
  Dtype dtype = Dtype::f32;
  // Of the input, the slowest dimension first; read before submit() returns. Equal on all ranks, but for the
  // first dimension of allgather and alltoall. reduce_scatter splits the first dimension; the first ranks get a
  // row more where it does not divide.
  std::span<const std::uint64_t> shape = {};
  Reduction op = Op::sum;  // user and premul_sum are not offered here; see prescale
  int root = 0;            // of broadcast
  double prescale = 1;     // each input is multiplied by it, in the dtype
  double postscale = 1;    // and the result
  Counts splits = {};  // alltoall: rows for each rank, which may change from call to call; empty: equal parts
  // Gives the output where its length follows from other ranks (allgather, alltoall, reduce_scatter): called
  // once all ranks are ready, by the queue's thread, with the rows that come from each rank (reduce_scatter:
  // of this rank). Must not wait. An exception, or null for more than no bytes, fails the operation on this
  // rank alone (on GPUs: the queue on all ranks). Unset: `output` is long enough.
  std::function<void*(std::span<const std::uint64_t> rows)> allocate = {};
  int priority = 0;  // the greatest first, with TUTTI_PRIORITY=direct
  // Tensors of one batch are communicated together; each names the batch and how many there are. One thread submits
  // them one after the other. Where one is refused, the batch fails on all ranks: do not submit the rest of it.
  std::string_view batch = {};
  std::uint32_t batch_size = 0;
  bool will_wait = false;  // the caller waits at once: negotiate without a pause
  Memory memory = Memory::detect;
  void* cuda_stream = nullptr;  // of calls on GPUs' memory, as in CallOptions
  // Of allreduce and reduce_scatter of f32 by sum or avg: the dtype of messages between nodes, as in CallOptions.
  std::optional<Dtype> wire_dtype = {};
  // Of allreduces of f32 by sum or avg in the memory of the host: the loss of rounding to the wire dtype is added at
  // the next step of this name. Equal on all ranks. Unset: as TUTTI_ERROR_FEEDBACK says.
  std::optional<bool> error_feedback = {};
};

// `bytes` of zeros on this rank's GPU, written when all work that was put on its default stream before is done; kept
// until one operation has used and overwritten them. Called by the queue's thread. Must not wait for other ranks.
using ZerosOnDevice = std::function<std::shared_ptr<void>(std::uint64_t bytes)>;

// The queue of one group. A handle: copies are the same queue. Every rank of the group makes one, at any time;
// ranks that make several of one group make them in the same order.
class TensorQueue {
 public:
  TensorQueue() = default;
  explicit TensorQueue(const CommGroup& group);

  bool is_open() const { return impl_ != nullptr; }
  int size() const;  // ranks of its group
  // Errors: invalid_argument, also for a name that is under way.
  Work submit(std::string_view name, const TensorCall& call) const;
  // This rank has no more tensors: others' allreduces and barriers go on without it, as if it gave zeros.
  // Complete when all ranks have joined; Work::source() is then the one that joined last.
  Work join() const;
  // The same where others submit allreduces of GPUs' memory, which fail there without this. An exception of `zeros`, or
  // null, ends the queue on all ranks.
  Work join(ZerosOnDevice zeros) const;
  // Rank 0 writes the phases of each tensor to this file from now on, as TUTTI_TIMELINE does from the start; any
  // timeline before ends. `mark_cycles`: it shows when negotiations begin. Other ranks' calls do nothing. Waits
  // until all ranks know. Errors: invalid_argument with the path and the system's reason; in a callback.
  void start_timeline(std::string_view path, bool mark_cycles = false) const;
  // Completes the file.
  void stop_timeline() const;
  // Ends the queue on all ranks, for all its handles: what is under way fails with `aborted`. Also what the end
  // of the last handle does. Waits for operations that use this rank's buffers, unless in a callback.
  void close();

  class Impl;

 private:
  std::shared_ptr<Impl> opened(const char* call) const;
  std::shared_ptr<Impl> impl_;
};

}  // namespace tutti
#pragma GCC visibility pop
