// The backend "tutti" of torch.distributed: every method of c10d::Backend (torch 2) or c10d::ProcessGroup
// (torch 1.13) over a tutti::CommGroup. Knows no Python.
#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "bindings/torch/work.hpp"

namespace tutti::torch_binding {

#if TORCH_VERSION_MAJOR >= 2
using BackendBase = c10d::Backend;
#else
using BackendBase = c10d::ProcessGroup;
#endif

using WorkPointer = c10::intrusive_ptr<c10d::Work>;
using Tensors = std::vector<at::Tensor>;
using TensorLists = std::vector<std::vector<at::Tensor>>;

// "1, 2, 3"
std::string join_numbers(const std::vector<int>& numbers, const char* between = ", ");

#if TORCH_VERSION_MAJOR >= 2
// The value of Backend.options: can be copied in Python, as split_group() does.
class BackendOptions final : public c10d::Backend::Options {
 public:
  using c10d::Backend::Options::Options;
};
#endif

// Semantics as torch documents them, else as ProcessGroupGloo's. Operations of one group are submitted in the
// order of the calls, which must be equal on all ranks. Errors of arguments are thrown at once; errors of
// communication come from Work::wait(), exception() and futures. After one of these the group has failed on
// all ranks. Any thread, one call at a time.
class TuttiBackend final : public BackendBase {
 public:
  using Milliseconds = std::chrono::milliseconds;

  // Joins the group of all `size` ranks that come with the same store. Collective. `timeout` is the deadline
  // of every wait. `ends_store`: rank 0 hosts the store, and ends it when it leaves the group.
  TuttiBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size, Milliseconds timeout,
               bool ends_store = false);
  // Over an existing group.
  TuttiBackend(c10::intrusive_ptr<c10d::Store> store, const CommGroup& group, Milliseconds timeout);
  ~TuttiBackend() override;
  TuttiBackend(const TuttiBackend&) = delete;
  TuttiBackend& operator=(const TuttiBackend&) = delete;

  const std::string getBackendName() const override;  // NOLINT(readability-const-return-type)

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& opts) override;
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPointer allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& opts) override;
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& opts) override;
  WorkPointer allgather(TensorLists& outputs, Tensors& inputs, const c10d::AllgatherOptions& opts) override;
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& opts) override;
  WorkPointer allgather_coalesced(TensorLists& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& opts) override;
  WorkPointer gather(TensorLists& outputs, Tensors& inputs, const c10d::GatherOptions& opts) override;
  WorkPointer scatter(Tensors& outputs, TensorLists& inputs, const c10d::ScatterOptions& opts) override;
  WorkPointer reduce_scatter(Tensors& outputs, TensorLists& inputs,
                             const c10d::ReduceScatterOptions& opts) override;
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& opts) override;
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits,
                            const c10d::AllToAllOptions& opts) override;
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& opts) override;
  // A message to this rank itself is complete at once; it matches receives that name this rank.
  WorkPointer send(Tensors& tensors, int peer, int tag) override;
  WorkPointer recv(Tensors& tensors, int peer, int tag) override;
  WorkPointer recvAnysource(Tensors& tensors, int tag) override;

  // Complete once all ranks have called it and this rank's earlier collectives are complete, their results in
  // place. Once the group has worked on a GPU, the thread also waits for the work on its current stream
  // there.
  WorkPointer barrier(const c10d::BarrierOptions& opts) override;
  // Over the store: reports the missing ranks, and leaves the group as it is.
  void monitoredBarrier(const c10d::BarrierOptions& opts, bool wait_all_ranks) override;
  // The number is counted by all ranks alike, from 0, so there is nothing to agree on.
  void setSequenceNumberForGroup() override {}
  std::uint64_t getSequenceNumberForGroup() override { return sequence_.load(std::memory_order_relaxed); }

#if TORCH_VERSION_MAJOR >= 2
  WorkPointer allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts) override;
  WorkPointer allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::AllgatherOptions& opts) override;
  WorkPointer reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                              const c10d::ReduceScatterOptions& opts) override;
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPointer endCoalescing() override;

  c10::intrusive_ptr<Options> getBackendOptions() override;
  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store,
                                          const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<Options>& opts) override;
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<Options>& opts, const int& rank,
                                          const int& size) override;
  void setTimeout(Milliseconds timeout) override;
  void abort() override;
  void shutdown() override;
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;
  // Of the CPU, whose index is -1.
  bool supportsTensorAlloc(c10::DeviceIndex device) override { return device < 0; }
#endif
#if TUTTI_HAS_TORCH_2_13
  bool supportsShrinking() const override { return true; }
  // The group of the ranks that stay, all of which call; also where this one has failed. This group ends. Throws if
  // another rank has died, too. By default, waits for this rank's collectives on the CPU; otherwise aborts them.
  c10::intrusive_ptr<c10d::Backend> shrink(const std::vector<std::int64_t>& ranks_to_exclude,
                                           int shrink_flags,
                                           const c10::intrusive_ptr<Options>& opts_override) override;
  c10d::ErrorType getError() override;
  // Of later submissions.
  void enableCollectivesTiming() override;
  // Called on a completion thread after every operation that succeeds, in any order.
  void registerOnCompletionHook(std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) override;
  void waitForPendingWorks() override;
  // Refused, with the reason.
  std::shared_ptr<c10::Allocator> getMemAllocator() override;
  void suspend() override;
  void resume() override;
  std::unordered_map<std::string, std::uint64_t> getMemoryStats() override;
#endif

  // Ranks that have died, if the group has failed. Collective over the others, which agree; afterwards this group can
  // only be shrunk, or left.
  std::vector<int> dead_ranks();

  // A tensor in memory that the other ranks of this node can map, zeroed: collectives on it copy less. The
  // memory lives as long as the tensor, also after the group was left.
  at::Tensor allocate(at::IntArrayRef sizes, const at::TensorOptions& options);

 private:
  static constexpr std::size_t kFewestUnderWay = 16;

  struct Operation {
    c10d::OpType type;
    const char* name;
    const char* title;
    int queue = DeviceStreams::kCollectives;
  };

  // Submits what `submit(group, submitted)` starts on tensors of `device`, and makes the Work. `inputs` are
  // the tensors that it reads, also for torch's profiler.
  template <class Submit>
  WorkPointer start(const Operation& operation, const at::Device& device, Milliseconds timeout,
                    const Tensors& inputs, const Submit& submit);
  // A call on a GPU, behind the current stream.
  std::shared_ptr<Launch> launch(const Operation& operation, const at::Device& device);
  WorkPointer finish_start(const Operation& operation, Milliseconds timeout, const Tensors& inputs,
                           Submitted submitted);
  // Of pairs of tensors, each an operation of its own.
  WorkPointer gather_into(const Operation& operation, Tensors outputs, Tensors inputs,
                          const c10d::AllgatherOptions& opts);
  WorkPointer reduce_scatter_from(const Operation& operation, Tensors outputs, Tensors inputs,
                                  const c10d::ReduceScatterOptions& opts);
  WorkPointer receive(const Operation& operation, Tensors& tensors, int source, int tag);
  WorkPointer receive_own(const Operation& operation, Tensors& tensors, int tag);
  WorkPointer reduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& opts);
  at::Tensor gather_rows(const at::Tensor& rows, const std::vector<std::int64_t>& counts,
                         Milliseconds timeout);
  WorkPointer barrier_on(const at::Device& device, const c10d::BarrierOptions& opts);
  void note_under_way(const std::shared_ptr<Execution>& execution);
  // Takes everything that a barrier waits for; the caller owns it afterwards.
  std::vector<std::shared_ptr<Execution>> take_under_way();
  int check_peer(const char* name, int peer) const;
  void erase_left_keys() noexcept;
  // Makes the successor, of the ranks that live and are not left out; returns all others. Collective over the members
  // of the last successor, if it has members to be left out; no communication otherwise.
  std::vector<int> go_on_without(const std::vector<int>& left_out);

  const c10::intrusive_ptr<c10d::Store> store_;
  std::shared_ptr<Membership> membership_;
  std::shared_ptr<Membership> successor_;  // null until the survivors have agreed
  const Milliseconds group_timeout_;
  bool ends_store_ = false;
  std::atomic<Milliseconds> timeout_;  // at most the group's
  std::atomic<std::uint64_t> sequence_{0};
  DeviceStreams streams_;
  OwnMessages own_messages_;
  std::atomic<c10::DeviceIndex> gpu_{-1};  // that calls have been on
  std::uint64_t monitored_barriers_ = 0;
  std::vector<std::string> left_keys_;  // of monitored barriers, in the store
  std::mutex submitted_mutex_;
  bool is_coalescing_ = false;  // guarded by submitted_mutex_, as is what follows
  std::vector<c10::intrusive_ptr<OperationWork>> coalesced_;
  // Collectives on the CPU that may not be settled yet: a barrier waits for them.
  std::vector<std::weak_ptr<Execution>> under_way_;
  std::size_t most_under_way_ = kFewestUnderWay;  // before settled ones are collected

#if TUTTI_HAS_TORCH_2_13
  // Records the end of the work, and calls the hook with it.
  void observe(const c10::intrusive_ptr<OperationWork>& work);
  // Observed, but the hook was not called yet.
  struct Pending {
    std::mutex mutex;
    std::condition_variable is_idle;
    std::size_t count = 0;
  };
  std::shared_ptr<Pending> pending_ = std::make_shared<Pending>();
  std::atomic<bool> is_timed_{false};

  // Sorted; throws for ranks that cannot be excluded.
  std::vector<int> check_excluded(const std::vector<std::int64_t>& ranks) const;
  // Waits for the collectives under way, whatever their outcome.
  void finish_under_way();
#endif
};

}  // namespace tutti::torch_binding
