// Threads that complete futures. Callbacks of a program may wait for other operations, which progress threads
// must not. Knows no tensor and no group.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <string>

namespace tutti::torch_binding {

// One for the process, never destroyed. A thread is always free for the next task, however many wait. Threads
// without a task for a second end.
class CompletionThreads {
 public:
  static CompletionThreads& instance();
  // Runs the task soon, on a thread of its own if all others are busy. Its exception is reported as a
  // warning. Any thread.
  void run(std::function<void()> task);
  // Waits until nothing is left to do. False if that took longer. Not in a task.
  bool wait_until_idle(std::chrono::milliseconds at_most);

 private:
  // The reason why no thread could be started; nothing if one was.
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
