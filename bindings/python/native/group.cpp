// The life of groups and operations in Python. Knows no collective.
#include "bindings/python/native/group.hpp"

#include <algorithm>
#include <atomic>
#include <limits>
#include <thread>
#include <unordered_set>
#include <utility>

namespace tutti::python {
namespace {

// What may outlive the interpreter, and must have let go of its world before: ranks that end without a
// goodbye are taken for dead. Never destroyed, because objects may die after static destructors.
template <class T>
std::unordered_set<T*>& living() {
  static auto* objects = new std::unordered_set<T*>;
  return *objects;
}

// Dropping the last reference to a world says goodbye to the others, which may take a moment.
template <class T>
void drop(T& reference) {
  T last = std::exchange(reference, T());
  const WithoutGil without;
  last = T();
}

thread_local bool is_callback_running = false;

// Callables that threads without the GIL hold: none may still be about to be called when the interpreter
// ends.
std::atomic<int> kept_count{0};

std::shared_ptr<PyObject> keep(const py::object& callback) {
  ++kept_count;
  return {py::object(callback).release().ptr(), [](PyObject* held) {
            {
              const py::gil_scoped_acquire gil;
              Py_DECREF(held);
            }
            --kept_count;
          }};
}

// Groups have ended, so each is called soon; not for ever, should it block.
void wait_for_callbacks() {
  const WithoutGil without;
  for (int i = 0; i < 10000 && kept_count.load() > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void call_back(PyObject* callback, const char* operation, int rank, const Error* failure) {
  const py::gil_scoped_acquire gil;
  const bool was_running = std::exchange(is_callback_running, true);
  try {
    const py::object told = failure == nullptr ? py::none() : exception_of(*failure, operation, rank);
    py::reinterpret_borrow<py::object>(callback)(told);
  } catch (py::error_already_set& error) {
    error.restore();
    PyErr_WriteUnraisable(callback);  // nobody else could take it
  }
  is_callback_running = was_running;
}

}  // namespace

void check_may_wait() {
  if (!is_callback_running) return;
  throw Error(
      StatusCode::invalid_argument, -1,
      "a completion callback must not wait: submit there (with the form that ends in _async), and wait "
      "elsewhere or give that operation a callback too");
}

OpenGroup::OpenGroup(CommGroup group) : group_(std::move(group)), rank_(group_.rank()) {
  living<OpenGroup>().insert(this);
}

OpenGroup::~OpenGroup() {
  living<OpenGroup>().erase(this);
  close();
}

void OpenGroup::abandon(Pending pending) { abandoned_.push_back(std::move(pending)); }

void OpenGroup::collect_complete() {
  std::vector<Pending> looked_at = std::exchange(abandoned_, {});
  {
    const WithoutGil without;
    for (Pending& pending : looked_at) {
      try {
        if (pending.work.test()) pending.work = Work();
      } catch (const Error&) {
        pending.work = Work();  // a child of fork()
      }
    }
  }
  for (Pending& pending : looked_at) {
    if (!pending.work.test()) abandoned_.push_back(std::move(pending));
  }
}

// Mostly in order, so that one look suffices while the GPU is behind.
void OpenGroup::collect_from_streams() {
  while (!on_streams_.empty() && on_streams_.front().work.test()) {
    const Pending ended = std::move(on_streams_.front());
    on_streams_.pop_front();  // before the owner of a buffer is told, who may make calls of this group
  }
}

void OpenGroup::close() {
  if (!group_.is_open()) return;
  rank_ = -1;
  std::vector<Pending> ended = std::exchange(abandoned_, {});
  for (Pending& pending : std::exchange(on_streams_, {})) ended.push_back(std::move(pending));
  for (Pending& pending : ended) pending.work = Work();
  // Peers may use the buffers until the group is gone.
  drop(group_);
}

void OpenGroup::close_all() {
  PendingWork::forget_all();
  const std::vector<OpenGroup*> groups(living<OpenGroup>().begin(), living<OpenGroup>().end());
  for (OpenGroup* group : groups) group->close();
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
  if (group_->group().is_open()) {
    group_->abandon(std::move(pending_));
  } else {
    drop(pending_.work);
  }
}

void PendingWork::forget_all() {
  for (PendingWork* work : living<PendingWork>()) {
    if (work->is_complete_) continue;
    work->is_complete_ = true;
    work->pending_.buffers.input.forget();
    work->pending_.buffers.output.forget();
    drop(work->pending_.work);
  }
}

void PendingWork::finish() {
  is_complete_ = true;
  pending_.buffers = {};
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
                                            rank = group_->rank_or_none()](const Error* failure) {
    call_back(held.get(), operation, rank, failure);
  };
  const WithoutGil without;
  work.on_complete(std::move(call));
}

void wait_all(const py::iterable& works) {
  const py::object errors = py::module_::import("tutti._errors").attr("Error");
  std::optional<py::error_already_set> first;
  for (const py::handle work : works) {
    try {
      work.cast<PendingWork&>().wait(std::nullopt);
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
    raise(*failure, operation_, group_->rank_or_none());
  }
  if (PyErr_Occurred() != nullptr) throw py::error_already_set();
  if (is_complete && !is_complete_) finish();
  return is_complete;
}

py::object PendingWork::result() {
  wait(std::nullopt);
  return result_;
}

}  // namespace tutti::python
