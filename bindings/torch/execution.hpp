// The operations of tutti behind one Work of torch, with their resources until they are complete. Stays alive
// when the Work is dropped. Knows neither torch's Work nor a collective.
#pragma once

#include <torch/version.h>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "bindings/torch/device_launch.hpp"
#include "bindings/torch/membership.hpp"
#include "bindings/torch/own_messages.hpp"

// Interfaces of torch 2.13 that some earlier torch 2 lacks.
#define TUTTI_HAS_TORCH_2_13 \
  (TORCH_VERSION_MAJOR > 2 || (TORCH_VERSION_MAJOR == 2 && TORCH_VERSION_MINOR >= 13))

namespace tutti::torch_binding {

class Execution;

// The submitted works, and their resources until they are complete.
struct Submitted {
  std::vector<tutti::Work> operations;
  std::vector<at::Tensor> buffers;               // in use by the operations
  std::vector<std::function<void()>> finishers;  // carry results from staging memory to the program's tensors
  std::vector<std::vector<at::Tensor>> outputs;  // values of result() and the future
  // For tensors on a GPU: they hold the buffers, and finishers run on the stream. Empty for tensors of the CPU.
  std::vector<std::shared_ptr<Launch>> launches;
  // Earlier ones that are settled first: all before a barrier, or those that were coalesced.
  std::vector<std::shared_ptr<Execution>> parts;
  bool fails_with_parts = false;  // their errors are its own
  // Of a receive from this rank itself, instead of an operation; waited for at most `receive_limit`.
  std::shared_ptr<PendingReceive> receive;
  std::chrono::milliseconds receive_limit{0};
};

// Finishers write to tensors of `outputs`. Only inference mode may change tensors that were made in it.
void run_finishers(const std::vector<std::function<void()>>& finishers,
                   const std::vector<std::vector<at::Tensor>>& outputs);

// The submitter, for messages and deadlines.
struct WorkInfo {
  int rank = -1;
  c10d::OpType type = c10d::OpType::UNKNOWN;
  const char* name = "";   // of the operation: "allreduce"
  const char* title = "";  // for torch's profiler: "tutti:all_reduce"
  std::uint64_t sequence = 0;
  std::chrono::milliseconds timeout{0};  // of this operation, where it is shorter than the group's; else 0
  bool is_timed = false;                 // getDuration() is asked for
};

// It is settled once its operations and parts are complete, its results are where the program wants them, and
// its outcome is known. Any thread.
class Execution : public std::enable_shared_from_this<Execution> {
 public:
  // `at_end` is called when it is settled.
  Execution(std::shared_ptr<Membership> membership, const WorkInfo& info, Submitted submitted,
            std::function<void()> at_end);
  Execution(const Execution&) = delete;
  Execution& operator=(const Execution&) = delete;

  const WorkInfo& info() const { return info_; }
  const std::vector<std::shared_ptr<Launch>>& launches() const { return launches_; }
  bool is_on_device() const { return !launches_.empty(); }
  const std::vector<std::vector<at::Tensor>>& outputs() const { return outputs_; }
  std::chrono::steady_clock::time_point started() const { return started_; }

  bool is_settled() const { return is_settled_.load(std::memory_order_acquire); }
  // Once settled: null, or why it has failed.
  std::exception_ptr failure() const { return is_settled() ? failure_ : nullptr; }
  StatusCode failure_code() const { return is_settled() ? failure_code_ : StatusCode::ok; }
  std::chrono::steady_clock::time_point finished() const { return finished_; }  // once settled, if timed
  int source() const { return is_settled() ? source_ : -1; }                    // of a receive

  // Makes progress; true once it is settled.
  bool poll();
  // Waits until it is settled. Throws only where it goes on: after `timeout` (zero: none), or where the
  // caller must not wait.
  void wait(std::chrono::milliseconds timeout);
  // Settles it as soon as it is complete, also without a waiting thread, then calls `then` on a completion
  // thread. If it is settled already, calls `then` here. Keeps it until then.
  void settle_when_complete(std::function<void()> then);
  // Futures and streams do not wait themselves: watches the deadline where no thread does.
  void watch_deadline();
  // Called at the deadline. False if another thread waits, which then keeps the deadline.
  bool end_overdue();
  // No caller will ask for it any more, but its buffers must stay and its results must arrive.
  void let_go();
  void abort();

 private:
  // False after `timeout`; throws the operation's error, or its own timeout at its deadline.
  bool wait_for(const tutti::Work& operation, std::chrono::milliseconds timeout) const;
  void wait_as_only_one(std::chrono::milliseconds timeout);
  std::optional<Error> wait_for_message(std::chrono::milliseconds timeout) const;
  std::vector<tutti::Work> operations() const;  // none once it is settled
  std::vector<std::shared_ptr<Execution>> parts() const;
  void collect_operations(std::vector<tutti::Work>* all) const;  // those of parts, too
  bool is_past_device() const;
  std::optional<Error> failure_of_complete() const;
  void settle_complete();  // waits for nothing: the operations are complete
  void settle(const std::optional<Error>& failure);

  const std::shared_ptr<Membership> membership_;
  const WorkInfo info_;
  const std::vector<std::shared_ptr<Launch>> launches_;
  const std::vector<std::vector<at::Tensor>> outputs_;
  const std::shared_ptr<PendingReceive> receive_;  // null but for a receive from this rank itself
  const std::chrono::milliseconds receive_limit_;
  const std::chrono::steady_clock::time_point started_ = std::chrono::steady_clock::now();
  const RunningClock::time_point submitted_at_ = RunningClock::now();  // for its deadline
  std::mutex waiting_mutex_;  // an operation of tutti has one waiting thread
  mutable std::mutex state_mutex_;
  Submitted submitted_;           // guarded by state_mutex_
  std::function<void()> at_end_;  // guarded by state_mutex_
  // Written before is_settled_, and never after.
  std::chrono::steady_clock::time_point finished_{};
  std::exception_ptr failure_;
  StatusCode failure_code_ = StatusCode::ok;
  int source_ = -1;
  std::atomic<bool> is_settled_{false};
};

// An error of tutti as torch throws them: RuntimeError, of torch 2 DistBackendError, in Python.
std::exception_ptr to_torch_exception(const Error& error, const char* operation);

}  // namespace tutti::torch_binding
