// An operation as torch sees it: c10d::Work over one or more operations of tutti. Knows no collective.
#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bindings/torch/device_launch.hpp"
#include "bindings/torch/membership.hpp"

// What torch 2.13 has and some earlier torch 2 has not.
#define TUTTI_HAS_TORCH_2_13 \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13))

namespace tutti::torch_binding {

// What was submitted, and what it needs until it is complete.
struct Submitted {
  std::vector<tutti::Work> operations;
  std::vector<at::Tensor> buffers;               // in use by the operations
  std::vector<std::function<void()>> finishers;  // carry results from staging memory to the program's tensors
  std::vector<std::vector<at::Tensor>> outputs;  // what result() and the future give
  // Of tensors on a GPU, where buffers are theirs and finishers have gone to the stream; of those of the CPU
  // none.
  std::vector<std::shared_ptr<Launch>> launches;
};

void run_finishers(const Submitted& submitted);

// Who submitted it, for messages and deadlines.
struct WorkInfo {
  int rank = -1;
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* name = "";   // of the operation: "allreduce"
  const char* title = "";  // for torch's profiler: "tutti:all_reduce"
  std::uint64_t sequence = 0;
  std::chrono::milliseconds timeout{0};  // of this operation, where it is shorter than the group's; else 0
  bool is_timed = false;                 // getDuration() is asked for
};

// Waiting and testing move things on. Errors are thrown by wait() and given by exception(); the future has
// them, too. Dropping it neither waits nor cancels: buffers and staged results are seen to when the
// operations are complete. Any thread.
// On a GPU, made with the stream of the call as the current one: wait() lets the current stream wait and
// throws errors that are known by then, and the future is complete from the beginning, its callbacks behind
// the call.
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
  // On a GPU, the thread itself waits with a timeout, for a barrier, and for a receive whose source it may
  // ask for. After `timeout` (zero: none) throws, and the operation goes on; after its own or the group's
  // deadline it has failed. Either way the message says "Timed out" and who is missing.
  bool wait(std::chrono::milliseconds timeout) override;
  // Fails the process group on all ranks: an operation alone cannot be taken back.
  void abort() override;
  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override;
#if TUTTI_HAS_TORCH_2_13
  // A WorkResult, never an error.
  c10::intrusive_ptr<c10::ivalue::Future> getFutureResult() override;
  // Milliseconds from its submission until all was done, where timing was enabled before.
  float getDuration() const override;
  std::uint64_t getSequencenumber() const override { return info_.sequence; }
#endif

  // Sees to it that it is settled as soon as it is complete, whoever waits, and calls `then` afterwards, on a
  // completion thread. Keeps it until then.
  void settle_when_complete(std::function<void()> then);
  // A future waits for nothing by itself, nor does a stream: has the deadline kept where nobody else does.
  void watch_deadline();
  bool is_on_device() const { return !launches_.empty(); }
  const std::vector<std::shared_ptr<Launch>>& launches() const { return launches_; }
  const std::vector<std::vector<at::Tensor>>& outputs() const { return submitted_.outputs; }
  const WorkInfo& info() const { return info_; }
  std::chrono::steady_clock::time_point started() const { return started_; }
  std::chrono::steady_clock::time_point finished() const;  // once settled

  // None once it is known to be complete.
  std::vector<tutti::Work> operations() const;

 private:
  // False after `timeout`; throws the operation's error, and at its own deadline that.
  bool wait_for(const tutti::Work& operation, std::chrono::milliseconds timeout) const;
  // Until it is settled; throws nothing but what leaves it under way.
  void wait_on_host(std::chrono::milliseconds timeout);
  // Why it has failed; the operations are complete.
  std::optional<Error> failure_of_complete() const;
  bool is_past_device() const;
  void make_future();
  void settle(const std::optional<Error>& failure);
  // Waits for nothing: the operations are complete.
  void settle_complete();
  void complete_future();
  std::exception_ptr to_exception(const Error& error) const;

  std::shared_ptr<Membership> membership_;
  const WorkInfo info_;
  const std::vector<std::shared_ptr<Launch>> launches_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point finished_{};  // guarded by state_mutex_
  std::atomic<bool> is_settled_{false};
  std::atomic<int> source_{-1};  // of a receive, once it is settled
  std::mutex waiting_mutex_;     // an operation of tutti has one waiting thread
  mutable std::mutex state_mutex_;
  Submitted submitted_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
  StatusCode failure_ = StatusCode::ok;  // guarded by state_mutex_
};

// An error of tutti as torch throws them: RuntimeError, of torch 2 DistBackendError, in Python.
std::exception_ptr to_torch_exception(const Error& error, const char* operation);

}  // namespace tutti::torch_binding
