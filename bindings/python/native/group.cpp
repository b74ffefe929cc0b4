// The life of groups and operations in Python. Knows no collective.
#include "bindings/python/native/group.hpp"

#include <algorithm>
#include <limits>
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

}  // namespace

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

void OpenGroup::close() {
  if (!group_.is_open()) return;
  rank_ = -1;
  std::vector<Pending> ended = std::exchange(abandoned_, {});
  for (Pending& pending : ended) pending.work = Work();
  // Peers may use the buffers until the group is gone.
  drop(group_);
}

void OpenGroup::close_all() {
  PendingWork::forget_all();
  const std::vector<OpenGroup*> groups(living<OpenGroup>().begin(), living<OpenGroup>().end());
  for (OpenGroup* group : groups) group->close();
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

bool PendingWork::wait_in_slices(std::chrono::steady_clock::time_point deadline) {
  using std::chrono::milliseconds;
  constexpr milliseconds kSlice{100};
  const Work work = pending_.work;
  WithoutGil without;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(deadline - std::chrono::steady_clock::now());
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
      is_complete = wait_in_slices(std::chrono::steady_clock::now() +
                                   std::chrono::duration_cast<std::chrono::steady_clock::duration>(
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
    finish();
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
