// Threads that drive an engine while those who submitted its operations do something else. Knows no operation.
//
// The first call for help starts them. A thread drives as long as operations are under way that no caller waits
// for. Then it naps a few times, so that submitting in quick succession costs no system call, and then it sleeps
// until it is called. A thread without a CPU of its own takes CPU time from the program. Where that shows, it
// stands back as long as callers come by, who drive too.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tutti {

class Engine;

struct ProgressThreadOptions {
  std::uint32_t count = 0;
  // Have they CPUs that nothing else needs? Then they poll as long as a caller would.
  bool is_dedicated = false;
  std::function<void(std::uint32_t number)> on_start;  // on the new thread: where it runs
};

class ProgressThreads {
 public:
  ProgressThreads(Engine& engine, ProgressThreadOptions options);
  ~ProgressThreads();  // not on one of its threads
  ProgressThreads(const ProgressThreads&) = delete;
  ProgressThreads& operator=(const ProgressThreads&) = delete;

  bool is_started() const { return is_started_.load(std::memory_order_relaxed); }
  bool is_dedicated() const { return options_.is_dedicated; }
  bool is_stopping() const { return is_stopping_.load(std::memory_order_relaxed); }
  // An operation is under way that nobody waits for, which the calling thread has made visible. Any thread;
  // a system call only if a thread sleeps, or none has been started yet. Where the system grants no thread,
  // callers alone make progress, and a warning says so.
  void call();

 private:
  void start();
  void run(std::uint32_t number);

  Engine& engine_;
  ProgressThreadOptions options_;
  std::atomic<bool> is_started_{false}, is_stopping_{false};
  std::atomic<std::uint32_t> calls_{0};  // sleeping threads wait for it to change
  std::mutex start_mutex_;
  std::vector<std::thread> threads_;
};

}  // namespace tutti
