// Completion, callbacks and waiting. See tensor_work.hpp.
#include "runtime/training/tensor_work.hpp"

#include <algorithm>
#include <utility>

namespace tutti {
namespace {

constexpr std::chrono::microseconds kBetweenHooks{200};

}  // namespace

void TensorWork::complete(const Status& status, int source) {
  const WorkRef alive(this);
  {
    const std::lock_guard lock(mutex_);
    if (is_complete()) return;
    status_ = status;
    source_ = source;
    is_calling_ = true;
    is_complete_.store(true, std::memory_order_release);
  }
  completed_.notify_all();
  for (;;) {
    std::vector<CompletionCallback> due;
    {
      const std::lock_guard lock(mutex_);
      due.swap(callbacks_);
      is_calling_ = !due.empty();
    }
    if (due.empty()) return;
    // Also the end of what they hold, which may be this queue.
    call_back(
        [&due](const Status& outcome) {
          for (const CompletionCallback& callback : due) callback(outcome);
          due.clear();
        },
        status);
  }
}

void TensorWork::when_complete(CompletionCallback callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_complete() || is_calling_) {
      callbacks_.push_back(std::move(callback));
      return;
    }
  }
  call_back(callback, status_);
}

Status TensorWork::wait(Clock::time_point deadline) {
  const WaitHook* const hook = current_wait_hook();
  std::unique_lock lock(mutex_);
  while (!is_complete()) {
    const auto now = Clock::now();
    if (now >= deadline)
      return Status(StatusCode::timeout, "the tensor is not complete: some rank has not submitted it");
    const auto until = hook == nullptr ? deadline : std::min(deadline, now + kBetweenHooks);
    completed_.wait_until(lock, until);
    if (hook == nullptr || is_complete()) continue;
    lock.unlock();
    call_wait_hook(*hook);
    lock.lock();
  }
  return status_;
}

}  // namespace tutti
