// An operation as torch sees it: c10d::Work over one or more operations of tutti. Knows no collective.
#pragma once

#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bindings/torch/membership.hpp"

namespace tutti::torch_binding {

// What was submitted, and what it needs until it is complete.
struct Submitted {
  std::vector<tutti::Work> operations;
  std::vector<at::Tensor> buffers;               // in use by the operations
  std::vector<std::function<void()>> finishers;  // carry results from staging memory to the program's tensors
  std::vector<std::vector<at::Tensor>> outputs;  // what result() and the future give
};

// Who submitted it, for messages and deadlines.
struct WorkInfo {
  int rank = -1;
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* name = "";   // of the operation: "allreduce"
  const char* title = "";  // for torch's profiler: "tutti:all_reduce"
  std::uint64_t sequence = 0;
  std::chrono::milliseconds timeout{0};  // of this operation, where it is shorter than the group's; else 0
};

// Waiting and testing move things on. Errors are thrown by wait() and given by exception(); the future has
// them, too. Dropping it neither waits nor cancels: buffers and staged results are seen to when the
// operations are complete. Any thread.
class OperationWork final : public c10d::Work {
 public:
  OperationWork(std::shared_ptr<Membership> membership, const WorkInfo& info, Submitted submitted,
                const std::vector<at::Tensor>& inputs);
  ~OperationWork() override;
  OperationWork(const OperationWork&) = delete;
  OperationWork& operator=(const OperationWork&) = delete;

  bool isCompleted() override;
  bool isSuccess() const override;
  int sourceRank() const override;
  std::vector<at::Tensor> result() override;
  void synchronize() override { wait(kNoTimeout); }
  // After `timeout` (zero: none) throws, and the operation goes on; after its own or the group's deadline it
  // has failed.
  bool wait(std::chrono::milliseconds timeout) override;
  // Fails the process group on all ranks: an operation alone cannot be taken back.
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;

  // None once it is known to be complete.
  std::vector<tutti::Work> operations() const;

 private:
  bool wait_for(const tutti::Work& operation, std::chrono::milliseconds timeout);
  void fail_at_deadline();
  void settle(const std::exception_ptr& failure);
  // Waits for nothing: the operations are complete.
  void settle_complete();
  void complete_future();
  std::exception_ptr to_exception(const Error& error) const;

  std::shared_ptr<Membership> membership_;
  const WorkInfo info_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::atomic<bool> is_settled_{false};
  std::atomic<int> source_{-1};  // of a receive, once it is settled
  std::mutex waiting_mutex_;     // an operation of tutti has one waiting thread
  mutable std::mutex state_mutex_;
  Submitted submitted_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// An error of tutti as torch throws them: RuntimeError, of torch 2 DistBackendError, in Python.
std::exception_ptr to_torch_exception(const Error& error, const char* operation);

}  // namespace tutti::torch_binding
