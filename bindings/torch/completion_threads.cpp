// The threads, started when they are first needed. Knows no tensor and no group.
#include "bindings/torch/completion_threads.hpp"

#include <c10/util/Exception.h>

#include <exception>
#include <string>
#include <thread>
#include <utility>

#include "tutti/detail/process.hpp"

namespace tutti::torch_binding {
namespace {

constexpr std::chrono::seconds kLongestIdle{1};

void carry_out(const std::function<void()>& task) {
  try {
    task();
  } catch (const std::exception& error) {
    TORCH_WARN("tutti: after an operation: ", error.what());
  } catch (...) {
    TORCH_WARN("tutti: after an operation: an exception of an unknown type");
  }
}

}  // namespace

CompletionThreads& CompletionThreads::instance() { return tutti::detail::of_process<CompletionThreads>(); }

void CompletionThreads::run(std::function<void()> task) {
  bool needs_thread = false;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    needs_thread = idle_count_ < tasks_.size();
    if (needs_thread) ++idle_count_;
  }
  const std::string failure = needs_thread ? start_thread() : "";
  if (!failure.empty()) {
    TORCH_WARN_ONCE("tutti: ", failure,
                    ". Callbacks of futures run one after the other now; one that waits for another's may "
                    "wait until its timeout.");
    std::unique_lock lock(mutex_);
    --idle_count_;
    // A busy thread takes the task later. Without any thread this one runs it.
    if (idle_count_ + running_count_ > 0 || tasks_.empty()) return;
    const std::function<void()> own = std::move(tasks_.back());
    tasks_.pop_back();
    lock.unlock();
    return carry_out(own);
  }
  has_task_.notify_one();
}

std::string CompletionThreads::start_thread() {
  std::thread thread;
  std::string failure = tutti::detail::start_thread(&thread, "tutti-callback", [this] { serve(); });
  if (failure.empty()) thread.detach();
  return failure;
}

bool CompletionThreads::wait_until_idle(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  return is_idle_.wait_for(lock, at_most, [this] { return tasks_.empty() && running_count_ == 0; });
}

void CompletionThreads::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    if (!has_task_.wait_for(lock, kLongestIdle, [this] { return !tasks_.empty(); })) {
      --idle_count_;
      return;
    }
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    --idle_count_;
    ++running_count_;
    lock.unlock();
    carry_out(task);
    task = nullptr;  // it may hold the last reference to a large object
    lock.lock();
    ++idle_count_;
    --running_count_;
    if (tasks_.empty() && running_count_ == 0) is_idle_.notify_all();
  }
}

}  // namespace tutti::torch_binding
