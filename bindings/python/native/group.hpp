// Groups and operations of Python objects: they hold their buffers, and end before the interpreter. Knows no
// collective.
#pragma once

#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <chrono>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/python/native/allocation.hpp"
#include "bindings/python/native/array.hpp"
#include "bindings/python/native/errors.hpp"
#include "bindings/python/native/user_op.hpp"
#include "bindings/python/native/waiting.hpp"
#include "tutti/c_handles.hpp"
#include "tutti/tutti.hpp"

namespace tutti::python {

struct Buffers {
  Array input;
  Array output;
  std::shared_ptr<UserCall> op;            // of user_op()
  std::shared_ptr<Allocation> allocation;  // of an output that is not known yet
  bool are_on_gpu() const { return input.is_on_gpu() || output.is_on_gpu(); }
};

// An operation with the objects that must live as long.
struct Pending {
  Work work;
  Buffers buffers;
};

// A group of Python. All members need the GIL.
class OpenGroup {
 public:
  explicit OpenGroup(CommGroup group);
  virtual ~OpenGroup();
  OpenGroup(const OpenGroup&) = delete;
  OpenGroup& operator=(const OpenGroup&) = delete;

  const CommGroup& group() const { return group_; }
  int rank_or_none() const { return rank_; }  // -1 once closed
  // For other libraries of the process; made at the first call, valid until close().
  tutti_group_t c_handle();
  // Takes an operation that no caller waits for any more; its buffers are in use until it is complete.
  virtual void abandon(Pending pending);
  // Takes an operation that is enqueued on its stream, so its call returns; a GPU still uses the buffers.
  void leave_on_stream(Pending pending) { on_streams_.push_back(std::move(pending)); }
  // Releases the buffers of those operations that are complete.
  void collect() {
    if (!abandoned_.empty()) collect_complete();
    if (!on_streams_.empty()) collect_from_streams();
  }
  virtual void close();
  // Options that every call starts with: they name the while_waiting function.
  CallOptions options() const;
  py::object while_waiting() const { return hook_ == nullptr ? py::none() : hook_->function; }
  void set_while_waiting(const py::object& function);
  // The end of the interpreter: as close(), without calls to owners of buffers.
  static void close_all();

 protected:
  std::vector<Pending> take_abandoned() { return std::exchange(abandoned_, {}); }

 private:
  // Kept as long as the group: operations under way refer to it.
  struct WaitHook {
    py::object function;
  };
  void collect_complete();
  void collect_from_streams();

  CommGroup group_;
  tutti_group_t c_handle_ = nullptr;
  int rank_ = -1;
  std::vector<Pending> abandoned_;
  std::deque<Pending> on_streams_;
  WaitHook* hook_ = nullptr;
  std::vector<std::unique_ptr<WaitHook>> hooks_;
};

// The result of an _async function.
class PendingWork {
 public:
  PendingWork(std::shared_ptr<OpenGroup> group, const char* operation, Pending pending, py::object result);
  ~PendingWork();
  PendingWork(const PendingWork&) = delete;
  PendingWork& operator=(const PendingWork&) = delete;

  bool test();
  // False if the time has passed; without one, waits for the group's deadline.
  bool wait(std::optional<double> timeout_seconds);
  py::object result();
  // Calls it with None or the exception once the operation is complete, on the thread that completes it.
  void on_complete(const py::object& callback);
  // Of a receive that is complete.
  std::optional<int> source() const {
    const int rank = pending_.work.source();
    return rank < 0 ? std::nullopt : std::optional<int>(rank);
  }
  const char* operation() const { return operation_; }
  bool is_known_complete() const { return is_complete_; }
  static void forget_all();
  const Work& work() const { return pending_.work; }

 private:
  bool wait_in_slices(RunningClock::time_point deadline);
  bool has_ended() const;  // of one for which waiting has failed
  void finish();
  void raise_failure_of_op();

  std::shared_ptr<OpenGroup> group_;
  const char* operation_;
  Pending pending_;
  py::object result_;
  bool is_complete_ = false;
  py::object failure_of_op_;  // the exception of user_op()'s function
  py::object cause_;          // and of an allocate()
};

using SharedGroup = std::shared_ptr<OpenGroup>;

// Releases the buffers once the operation is complete. Keeps nothing of the group.
void release_when_complete(Pending pending);

// Waits for each; then throws the first failure, or at once what a signal handler has raised.
void wait_all(const py::iterable& works);

// Works whose completions the program polls, in a thread of its choice.
class WorkQueue {
 public:
  void add(const py::object& work);
  // The next Work that is complete, or None.
  py::object poll();
  std::size_t size() const { return works_.size(); }

 private:
  CompletionQueue queue_;
  std::unordered_map<std::uint64_t, py::object> works_;
  std::uint64_t next_ = 0;
};

// Aborts the group, since its ranks have different results now, and throws the exception of the function.
[[noreturn]] void fail_by_op(const OpenGroup& group, const char* operation, const py::object& raised);

// Throws in a completion callback: a call that is waited for must not be submitted there.
void check_may_wait();

// Calls `start`, which returns a Work, without the GIL, and waits for it; calls on GPU memory do not wait, as
// in C++. Throws its error.
template <class Start>
void run_to_end(const SharedGroup& group, const char* operation, Buffers&& buffers, const Start& start) {
  check_may_wait();
  group->collect();
  const CommGroup handle = group->group();  // another thread may close the group meanwhile
  Pending pending{{}, std::move(buffers)};
  const bool is_on_gpu = pending.buffers.are_on_gpu();
  bool is_done = false;
  {
    WithoutGil without;
    pending.work = start(handle);
    if (!is_on_gpu) is_done = without.wait(pending.work);
  }
  if (is_done) {
    const py::object raised =
        pending.buffers.op == nullptr ? py::object() : pending.buffers.op->take_failure();
    if (raised) fail_by_op(*group, operation, raised);
    return;
  }
  if (is_on_gpu) return group->leave_on_stream(std::move(pending));
  group->abandon(std::move(pending));
  throw py::error_already_set();  // what the signal handler raised
}

// The same without waiting.
template <class Start>
std::unique_ptr<PendingWork> start_only(const SharedGroup& group, const char* operation, Buffers&& buffers,
                                        py::handle result, const Start& start) {
  group->collect();
  const CommGroup handle = group->group();
  Pending pending{{}, std::move(buffers)};
  {
    const WithoutGil without;
    pending.work = start(handle);
  }
  return std::make_unique<PendingWork>(group, operation, std::move(pending),
                                       py::reinterpret_borrow<py::object>(result));
}

// Errors of tutti that leave `function` become exceptions of Python.
template <class Function>
auto guarded(const OpenGroup& group, const char* operation, const Function& function) {
  try {
    return function();
  } catch (const Error& error) {
    raise(error, operation, group.rank_or_none());
  }
}

}  // namespace tutti::python
