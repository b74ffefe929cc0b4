// The threads, started when they are first needed. Knows no tensor and no group.
#include "bindings/torch/completion_threads.hpp"

#include <thread>
#include <utility>

namespace tutti::torch_binding {

CompletionThreads& CompletionThreads::instance() {
  static auto* threads = new CompletionThreads;
  return *threads;
}

void CompletionThreads::run(std::function<void()> task) {
  bool needs_thread = false;
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    needs_thread = idle_count_ < tasks_.size();
    if (needs_thread) ++idle_count_;
  }
  if (needs_thread) std::thread([this] { serve(); }).detach();
  has_task_.notify_one();
}

bool CompletionThreads::wait_until_idle(std::chrono::milliseconds at_most) {
  std::unique_lock lock(mutex_);
  return is_idle_.wait_for(lock, at_most, [this] { return tasks_.empty() && running_count_ == 0; });
}

void CompletionThreads::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    has_task_.wait(lock, [this] { return !tasks_.empty(); });
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    --idle_count_;
    ++running_count_;
    lock.unlock();
    task();
    task = nullptr;  // what it holds may be the last of something large
    lock.lock();
    ++idle_count_;
    --running_count_;
    if (tasks_.empty() && running_count_ == 0) is_idle_.notify_all();
  }
}

}  // namespace tutti::torch_binding
