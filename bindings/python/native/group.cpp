// The life of groups and operations in Python. Knows no collective.
#include "bindings/python/native/group.hpp"

#include <algorithm>
#include <limits>
#include <thread>
#include <unordered_set>
#include <utility>

#include "bindings/python/native/kept.hpp"

namespace tutti::python {
namespace {

// Objects that may outlive the interpreter but must release their world before: ranks that end without a
// goodbye are taken for dead. Never destroyed, because objects may die after static destructors.
template <class T>
std::unordered_set<T*>& living() {
  static auto* objects = new std::unordered_set<T*>;
  return *objects;
}

// Dropping the last reference to a world says goodbye to the other ranks, which may take some time.
template <class T>
void drop(T& reference) {
  T last = std::exchange(reference, T());
  const WithoutGil without;
  last = T();
}

// No callable may still be about to be called when the interpreter ends. Groups have ended, so each is called
// soon; not for ever, should it block.
void wait_for_callbacks() {
  const WithoutGil without;
  for (int i = 0; i < 10000 && kept_count.load() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void call_back(const py::object& callback, const char* operation, int rank, UserCall* op,
               const Error* failure) {
  const py::gil_scoped_acquire gil;
  const InCallback running;
  try {
    py::object told = py::none();
    if (failure != nullptr) {
      told = exception_of(*failure, operation, rank);
    } else if (op != nullptr && op->failure()) {
      told = op->failure();
    }
    callback(told);
  } catch (py::error_already_set& error) {
    error.restore();
    PyErr_WriteUnraisable(callback.ptr());  // no caller could catch it
  }
}

PendingWork& work_of(py::handle object, const char* call) {
  if (py::isinstance<PendingWork>(object)) return object.cast<PendingWork&>();
  throw py::type_error(std::string(call) + ": expected a Work, not " + Py_TYPE(object.ptr())->tp_name);
}

}  // namespace

void check_may_wait() {
  if (!InCallback::is_running()) return;
  throw Error(StatusCode::invalid_argument, -1,
              "a callback must not wait: submit there (with the form that ends in _async), and wait "
              "elsewhere or give that operation a callback too");
}

OpenGroup::OpenGroup(CommGroup group) : group_(std::move(group)), rank_(group_.rank()) {
  living<OpenGroup>().insert(this);
}

OpenGroup::~OpenGroup() {
  living<OpenGroup>().erase(this);
  close();
}

tutti_group_t OpenGroup::c_handle() {
  if (c_handle_ == nullptr) c_handle_ = make_c_handle(group_);
  return c_handle_;
}

void OpenGroup::abandon(Pending pending) {
  if (group_.is_open()) {
    abandoned_.push_back(std::move(pending));
  } else {
    drop(pending.work);
  }
}

void release_when_complete(Pending pending) {
  const Work work = std::exchange(pending.work, {});
  const auto held = keep(std::move(pending));
  const WithoutGil without;
  if (!work.test()) work.on_complete([held](const Error*) {});
}

void OpenGroup::collect_complete() {
  std::vector<Pending> looked_at = std::exchange(abandoned_, {});
  std::vector<bool> is_complete(looked_at.size());
  {
    const WithoutGil without;
    for (std::size_t i = 0; i < looked_at.size(); ++i) {
      try {
        is_complete[i] = looked_at[i].work.test();
      } catch (const Error&) {
        is_complete[i] = true;  // a child of fork()
      }
      if (is_complete[i]) looked_at[i].work = Work();
    }
  }
  for (std::size_t i = 0; i < looked_at.size(); ++i) {
    if (!is_complete[i]) abandoned_.push_back(std::move(looked_at[i]));
  }
}

// Mostly in order, so one test suffices while the GPU is behind.
void OpenGroup::collect_from_streams() {
  while (!on_streams_.empty() && on_streams_.front().work.test()) {
    const Pending ended = std::move(on_streams_.front());
    on_streams_.pop_front();  // before the buffer is released: its owner may make calls of this group
  }
}

void OpenGroup::close() {
  if (!group_.is_open()) return;
  rank_ = -1;
  std::vector<Pending> ended = std::exchange(abandoned_, {});
  for (Pending& pending : std::exchange(on_streams_, {})) ended.push_back(std::move(pending));
  for (Pending& pending : ended) pending.work = Work();
  // Peers may use the buffers until the group is gone.
  tutti_group_close(&c_handle_);
  drop(group_);
}

CallOptions OpenGroup::options() const {
  CallOptions options;
  if (hook_ == nullptr) return options;
  options.while_waiting = [](void* context) noexcept {
    const py::gil_scoped_acquire gil;
    const InCallback running;
    const py::object& function = static_cast<const WaitHook*>(context)->function;
    try {
      function();
    } catch (py::error_already_set& error) {
      error.restore();
      PyErr_WriteUnraisable(function.ptr());  // the call that waits has no part in it
    }
  };
  options.while_waiting_context = hook_;
  return options;
}

void OpenGroup::set_while_waiting(const py::object& function) {
  hook_ = nullptr;
  if (function.is_none()) return;
  if (PyCallable_Check(function.ptr()) == 0) throw py::type_error("while_waiting: it cannot be called");
  for (const std::unique_ptr<WaitHook>& known : hooks_) {
    if (known->function.equal(function)) hook_ = known.get();
  }
  if (hook_ != nullptr) return;
  hooks_.push_back(std::make_unique<WaitHook>(WaitHook{function}));
  hook_ = hooks_.back().get();
}

void OpenGroup::close_all() {
  PendingWork::forget_all();
  const std::vector<OpenGroup*> groups(living<OpenGroup>().begin(), living<OpenGroup>().end());
  for (OpenGroup* group : groups) {
    if (living<OpenGroup>().count(group) != 0) group->close();
  }
  wait_for_callbacks();
}

PendingWork::PendingWork(std::shared_ptr<OpenGroup> group, const char* operation, Pending pending,
                         py::object result)
    : group_(std::move(group)),
      operation_(operation),
      pending_(std::move(pending)),
      result_(std::move(result)) {
  living<PendingWork>().insert(this);
}

PendingWork::~PendingWork() {
  living<PendingWork>().erase(this);
  if (is_complete_) return;
  group_->abandon(std::move(pending_));
}

void PendingWork::forget_all() {
  for (PendingWork* work : living<PendingWork>()) {
    if (work->is_complete_) continue;
    work->is_complete_ = true;
    work->pending_.buffers.input.forget();
    work->pending_.buffers.output.forget();
    work->pending_.buffers.op.reset();
    work->pending_.buffers.allocation.reset();
    drop(work->pending_.work);
  }
}

void PendingWork::finish() {
  is_complete_ = true;
  if (pending_.buffers.op != nullptr) failure_of_op_ = pending_.buffers.op->take_failure();
  if (pending_.buffers.allocation != nullptr) {
    result_ = pending_.buffers.allocation->result();
    cause_ = pending_.buffers.allocation->failure();
  }
  pending_.buffers = {};
}

void PendingWork::raise_failure_of_op() {
  if (failure_of_op_) fail_by_op(*group_, operation_, failure_of_op_);
}

bool PendingWork::test() {
  if (is_complete_) return true;
  const Work work = pending_.work;
  bool is_complete = false;
  {
    const WithoutGil without;
    is_complete = work.test();
  }
  if (is_complete) finish();
  return is_complete;
}

// Where waiting was refused, in a callback, the buffers are still in use.
bool PendingWork::has_ended() const {
  try {
    const Work work = pending_.work;
    const WithoutGil without;
    return work.test();
  } catch (const Error&) {
    return true;  // a child of fork()
  }
}

void PendingWork::on_complete(const py::object& callback) {
  if (PyCallable_Check(callback.ptr()) == 0)
    throw py::type_error("on_complete: callback: it cannot be called");
  const Work work = pending_.work;
  std::function<void(const Error*)> call = [held = keep(callback), operation = operation_,
                                            rank = group_->rank_or_none(),
                                            op = pending_.buffers.op](const Error* failure) {
    call_back(*held, operation, rank, op.get(), failure);
  };
  const WithoutGil without;
  work.on_complete(std::move(call));
}

void WorkQueue::add(const py::object& work) {
  const Work operation = work_of(work, "add").work();
  const std::uint64_t tag = next_++;
  {
    const WithoutGil without;
    queue_.add(operation, tag);
  }
  works_.emplace(tag, work);
}

py::object WorkQueue::poll() {
  std::optional<CompletionQueue::Completion> next;
  {
    const WithoutGil without;
    next = queue_.poll();
  }
  if (!next) return py::none();
  const auto found = works_.find(next->tag);
  py::object work = found->second;
  works_.erase(found);
  work.cast<PendingWork&>().test();  // gives its arrays back
  return work;
}

void fail_by_op(const OpenGroup& group, const char* operation, const py::object& raised) {
  if (group.group().is_open()) {
    const std::string why = "the op of " + std::string(operation) + " raised " +
                            std::string(Py_TYPE(raised.ptr())->tp_name) + ": " +
                            py::str(raised).cast<std::string>();
    const WithoutGil without;
    try {
      group.group().abort(why);
    } catch (const Error&) {
      // The exception of the op is the cause.
    }
  }
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
  throw py::error_already_set();
}

void wait_all(const py::iterable& works) {
  const py::object errors = py::module_::import("tutti._errors").attr("Error");
  std::optional<py::error_already_set> first;
  for (const py::handle work : works) {
    try {
      work_of(work, "wait_all").wait(std::nullopt);
    } catch (py::error_already_set& error) {
      if (!error.matches(errors)) throw;
      if (!first) first.emplace(std::move(error));
    }
  }
  if (first) throw std::move(*first);
}

bool PendingWork::wait_in_slices(RunningClock::time_point deadline) {
  using std::chrono::milliseconds;
  constexpr milliseconds kSlice{100};
  const Work work = pending_.work;
  WithoutGil without;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - RunningClock::now());
    if (work.wait_for(std::clamp(left, milliseconds(0), kSlice))) return true;
    if (left <= kSlice) return false;
    if (without.is_interrupted()) return false;
  }
}

bool PendingWork::wait(std::optional<double> timeout_seconds) {
  bool is_complete = false;
  std::optional<Error> failure;
  try {
    if (timeout_seconds) {
      // Longer than a day is no less than for ever, and fits the clock.
      const double seconds = std::clamp(*timeout_seconds, 0.0, 86400.0);
      is_complete = wait_in_slices(RunningClock::now() + std::chrono::duration_cast<RunningClock::duration>(
                                                             std::chrono::duration<double>(seconds)));
    } else {
      const Work work = pending_.work;
      WithoutGil without;
      is_complete = without.wait(work);
    }
  } catch (const Error& error) {
    failure = error;
  }
  if (failure) {
    if (has_ended()) finish();
    raise(*failure, operation_, group_->rank_or_none(), cause_);
  }
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (is_complete && !is_complete_) finish();
  if (is_complete) raise_failure_of_op();
  return is_complete;
}

py::object PendingWork::result() {
  wait(std::nullopt);
  return result_;
}

}  // namespace tutti::python
