// Waiting for a tensor. See tensor_work.hpp.
#include "runtime/training/tensor_work.hpp"

#include <algorithm>
#include <mutex>

#include "runtime/training/tensor_scheduler.hpp"

namespace tutti {

void TensorHelp::give(TensorWork& work, Clock::time_point until) {
  const std::shared_lock lock(mutex_);
  if (scheduler_ != nullptr) {
    scheduler_->help(work, until);
  } else {
    work.sleep(until);  // its end is on the way
  }
}

void TensorHelp::advance() {
  const std::shared_lock lock(mutex_);
  if (scheduler_ != nullptr) scheduler_->advance();
}

void TensorHelp::end() {
  const std::unique_lock lock(mutex_);
  scheduler_ = nullptr;
}

void TensorWork::run_by(WorkState* operation) {
  {
    const std::lock_guard lock(mutex_);
    if (is_complete()) return;
    operation_ = WorkRef(operation);
  }
  completed_.notify_all();
}

// The operation's memory may end with the group.
void TensorWork::on_complete(std::size_t /*callbacks*/) { operation_ = {}; }

void TensorWork::sleep(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  if (is_complete() || operation_) return;
  if (const Clock::time_point now = Clock::now(); now < until)
    completed_.wait_for(lock, sleep_until_reading(until, now));
}

bool TensorWork::test() {
  if (is_complete()) return true;
  WorkRef operation;
  {
    const std::lock_guard lock(mutex_);
    operation = operation_;
  }
  if (operation) {
    operation->test();
  } else {
    help_->advance();
  }
  return is_complete();
}

Status TensorWork::wait(Clock::time_point deadline) {
  constexpr std::chrono::microseconds kBetweenHooks{200};
  const WaitHook* const hook = current_wait_hook();
  while (!is_complete()) {
    const Clock::time_point now = Clock::now();
    const Clock::time_point until = hook == nullptr ? deadline : std::min(deadline, now + kBetweenHooks);
    std::unique_lock lock(mutex_);
    const WorkRef operation = operation_;
    if (now >= deadline) {
      lock.unlock();
      Status reached = operation && !operation->is_complete() ? operation->wait(deadline) : Status();
      if (is_complete()) break;
      if (!reached) return reached;
      return Status(StatusCode::timeout, "the tensor is not complete: some rank has not submitted it");
    }
    if (!operation) {
      lock.unlock();
      help_->give(*this, until);
    } else if (!operation->is_complete()) {
      lock.unlock();
      static_cast<void>(operation->wait(until));  // the tensor gets its outcome from the callback
    } else if (!is_complete()) {
      completed_.wait_for(lock, sleep_until_reading(until, now));  // another thread is in the callback
    }
    if (hook != nullptr && !is_complete()) call_wait_hook(*hook);
  }
  return status();
}

}  // namespace tutti
