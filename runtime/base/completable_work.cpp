// Completion, and callbacks that come before it or after. See completable_work.hpp.
#include "runtime/base/completable_work.hpp"

#include <utility>

namespace tutti {

void CompletableWork::complete(const Status& status, int source) {
  const WorkRef alive(this);  // a callback may drop the last reference
  {
    const std::lock_guard lock(mutex_);
    if (is_complete()) return;
    status_ = status;
    source_ = source;
    is_calling_ = true;
    on_complete(callbacks_.size());
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
    // Also the end of what they hold, which may be the owner of this work.
    call_back(
        [&due](const Status& outcome) {
          for (const CompletionCallback& callback : due) callback(outcome);
          due.clear();
        },
        status);
  }
}

void CompletableWork::when_complete(CompletionCallback callback) {
  {
    const std::lock_guard lock(mutex_);
    if (!is_complete() || is_calling_) {
      callbacks_.push_back(std::move(callback));
      if (!is_complete()) on_wanted();
      return;
    }
  }
  call_back(callback, status_);
}

}  // namespace tutti
