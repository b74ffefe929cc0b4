// Waiting for a tensor. See tensor_work.hpp.
#include "runtime/training/tensor_work.hpp"

#include <algorithm>

namespace tutti {

Status TensorWork::wait(Clock::time_point deadline) {
  constexpr std::chrono::microseconds kBetweenHooks{200};
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
  return status();
}

}  // namespace tutti
