// An operation as torch sees it: c10d::Work over an Execution. Knows no collective.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <memory>
#include <mutex>
#include <vector>

#include "bindings/torch/execution.hpp"

namespace tutti::torch_binding {

// Waiting and testing make progress. wait() throws errors, exception() returns them, and the future has them.
// Dropping it neither waits nor cancels: buffers and staged results are handled when the operations are
// complete. Any thread. On a GPU, make it with the stream of the call as the current one. wait() makes the
// current stream wait, and throws the errors known by then. The future is complete from the beginning; its
// callbacks run behind the call.
class OperationWork final : public c10d::Work {
 public:
  OperationWork(std::shared_ptr<Membership> membership, const WorkInfo& info, Submitted submitted,
                const std::vector<at::Tensor>& inputs);
  ~OperationWork() override;
  OperationWork(const OperationWork&) = delete;
  OperationWork& operator=(const OperationWork&) = delete;

  bool isCompleted() override { return execution_->poll(); }
  bool isSuccess() const override;
  std::exception_ptr exception() const override { return execution_->failure(); }
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(kNoTimeout); }
  // On a GPU, the thread itself waits if there is a timeout, for a barrier, and for a receive from any
  // source. After `timeout` (zero: none) throws, and the operation goes on; after its own or the group's
  // deadline it has failed. Either way the message says "Timed out" and names the missing ranks.
  bool wait(std::chrono::milliseconds timeout) override;
  // Fails the process group on all ranks: an operation alone cannot be taken back.
  void abort() override { execution_->abort(); }
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
#if TUTTI_HAS_TORCH_2_13
  // A WorkResult, never an error.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  // Milliseconds from its submission until all was done, where timing was enabled before.
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return execution_->info().sequence; }
#endif

  const std::shared_ptr<Execution>& execution() const { return execution_; }

 private:
  void make_future();
  void complete_future();

  std::shared_ptr<Execution> execution_;
  std::mutex future_mutex_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;  // guarded by future_mutex_ until it is there
};

}  // namespace tutti::torch_binding
