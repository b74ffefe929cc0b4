// Threads that complete futures: what a program attached to one may wait for other operations, which the
// threads that carry operations on must not. Knows no tensor and no group.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

namespace tutti::torch_binding {

// One for the process, never destroyed. There is always a thread free for the next task, however many wait;
// threads that have had nothing to do for a second end.
class CompletionThreads {
 public:
  static CompletionThreads& instance();
  // Runs the task soon, on a thread of its own if all others are busy. Its exception is reported as a
  // warning. Any thread.
  void run(std::function<void()> task);
  // Waits until nothing is left to do. False if that took longer. Not in a task.
  bool wait_until_idle(std::chrono::milliseconds at_most);

 private:
  // Why the system gave no thread; nothing if it did.
  std::string start_thread();
  void serve();

  std::mutex mutex_;
  std::condition_variable has_task_;
  std::condition_variable is_idle_;
  std::deque<std::function<void()>> tasks_;
  std::size_t idle_count_ = 0;
  std::size_t running_count_ = 0;
};

}  // namespace tutti::torch_binding
